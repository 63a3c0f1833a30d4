"""Defenses of the passive parties' columns against the active party."""
