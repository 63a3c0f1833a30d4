"""Broken defenses of a transfer by answers: each states the claim of a correct one, and an audit must refute it."""
