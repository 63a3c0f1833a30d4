"""Membership attacks that use only the final model, with or without reference models."""
