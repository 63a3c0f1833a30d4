"""Calibration: every estimator on mechanisms of known privacy and on degenerate inputs."""
