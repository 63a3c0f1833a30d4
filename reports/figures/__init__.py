"""Figures of a report, one per file, each with a table of the same data."""
