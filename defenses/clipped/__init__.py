"""Fields, and the privacy claim, that most defenses with L2 clipping and Gaussian noise share."""
