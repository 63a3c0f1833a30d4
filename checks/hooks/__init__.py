"""Checks that call the hooks of a defense in many small surroundings, drawn by seed, with and without one unit."""
