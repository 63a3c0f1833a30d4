"""Defenses of vertical federations: of the labels of one party, and of the columns of the others."""
