"""Local training: what one client does in a round, for all replicas at once."""
