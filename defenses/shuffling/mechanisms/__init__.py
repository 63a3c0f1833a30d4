"""What clients send to a shuffler, the shuffler itself, and the calibration at the server."""
