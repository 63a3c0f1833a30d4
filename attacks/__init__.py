"""Attacks: each brings evidence from what one observer may see, one a file."""
