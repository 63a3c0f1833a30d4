"""Estimators: lower bounds on epsilon from evidence, one per file, found by their file names."""
