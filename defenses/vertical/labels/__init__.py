"""Defenses of the labels, which the active party holds, against the passive parties."""
