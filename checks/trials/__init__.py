"""Statistical trials of everything that a claim's observer receives, in federations with and without one unit."""
