"""Audit: privacy claims, evidence, estimators of epsilon and verdicts."""
