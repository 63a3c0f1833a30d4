"""Randomisers of one bounded number."""
