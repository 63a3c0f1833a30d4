"""Defenses, protections and mechanisms that are broken on purpose, by family, and unusual correct protections."""
