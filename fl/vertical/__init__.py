"""Vertical federated learning: parties hold different columns of the same people, and one of them holds the labels."""
