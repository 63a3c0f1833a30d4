"""Attacks: each file holds one attack, which derives evidence from what one observer may see."""
