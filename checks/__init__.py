"""Implementation checks: deterministic comparisons of replayed runs, of random draws and of noise distributions."""
