"""Randomisers of one value from a finite domain."""
