"""Mechanisms of shuffled reports: noise of the clients, the shuffler, and the calibration at the server."""
