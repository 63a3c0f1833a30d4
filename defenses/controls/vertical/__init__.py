"""Defenses of vertical federations that are broken on purpose."""
