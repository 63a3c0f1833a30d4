"""Scoring: truth meets an attack's output here and nowhere else."""
