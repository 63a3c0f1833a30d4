"""Audit of a single mechanism: any function of an input and a random generator."""
