"""Attacks of the public on who took part in a vertical federation, by its final models."""
