"""Gradient leakage: images from uploads."""
