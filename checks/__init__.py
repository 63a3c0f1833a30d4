"""Implementation checks: deterministic comparisons of replayed runs, of draws and of laws."""
