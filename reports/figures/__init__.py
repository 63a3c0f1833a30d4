"""Figures of a report, each with a table of the same data."""
