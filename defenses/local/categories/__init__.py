"""Local DP on sampled coordinates that are reported as categories of a public grid."""
