"""Mutants: mechanisms with a planted bug, each beside its correct twin: catch the one, spare the other."""
