"""Checks of one watched run of a foreign system: sums, noise, lots, accounting, and state without noise."""
