"""Attacking: train a federation, run the attacks of a suite on what each observer received."""
