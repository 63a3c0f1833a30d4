"""Sample-level differential privacy: each client protects each of its training samples."""
