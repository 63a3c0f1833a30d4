"""Local DP on whole reports: one randomiser for all coordinates."""
