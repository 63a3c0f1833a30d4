"""Defenses: each file defines one, which states its claims; the other files are what several of them share."""
