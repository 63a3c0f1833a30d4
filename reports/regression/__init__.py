"""Has a defense got worse: two runs paired cell by cell and seed by seed, a baseline file, one verdict."""
