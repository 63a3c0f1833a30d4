"""Randomisers of a whole vector."""
