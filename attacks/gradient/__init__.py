"""Gradient inversion attacks: reconstruct images from uploads."""
