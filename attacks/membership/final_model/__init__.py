"""Membership attacks on the final model alone, with or without reference models."""
