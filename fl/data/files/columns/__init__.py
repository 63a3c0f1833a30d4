"""Columns of a table: what their cells hold, and how they become features."""
