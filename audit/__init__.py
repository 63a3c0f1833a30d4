"""The court: claims, evidence, statistics, verdicts."""
