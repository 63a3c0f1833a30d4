"""Checks of the noise that a defense draws: its presence, scale, shape, independence and freshness."""
