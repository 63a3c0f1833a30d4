"""Membership inference: who took part."""
