"""Federated algorithms: what a client computes and how the server combines it."""
