"""Run, attack and audit transfers by answers."""
