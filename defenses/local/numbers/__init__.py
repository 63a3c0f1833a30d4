"""Local DP on sampled coordinates that are reported as numbers."""
