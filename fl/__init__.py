"""The laboratory: data, clients, rounds."""
