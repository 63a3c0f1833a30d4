"""Figures: one a file, each with the table behind it."""
