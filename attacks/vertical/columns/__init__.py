"""Attacks of the active party on the columns of a passive party."""
