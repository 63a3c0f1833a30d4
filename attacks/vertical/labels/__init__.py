"""Attacks of a passive party on the labels, which only the active party holds."""
