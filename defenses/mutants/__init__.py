"""Mutants: mechanisms with a planted bug, each beside its correct twin; an audit must catch the one and spare the other."""
