"""Defenses: each signs the claims it makes, one a file."""
