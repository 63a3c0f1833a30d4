"""Computes sample gradients, their norms and their clipped sums for any model."""
