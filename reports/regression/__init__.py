"""Regression tests of defenses: two runs paired by cell and seed, baseline files, and the outcome for CI."""
