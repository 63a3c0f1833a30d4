"""Defenses and mechanisms that are broken on purpose: an audit must refute them and spare their correct versions."""
