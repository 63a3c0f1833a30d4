"""Client-level differential privacy with a trusted server."""
