"""Local DP in a federation: a few sampled coordinates of an update, each randomised by itself, or a private choice."""
