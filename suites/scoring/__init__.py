"""Scoring: compares an attack's output with the truth; no other folder has both."""
