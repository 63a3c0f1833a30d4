"""Randomisers of one value out of a finite domain."""
