"""Client-level and user-level differential privacy with a trusted server."""
