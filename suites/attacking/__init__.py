"""Attacking: trains federations and runs the attacks of a suite on the view of each attack's observer."""
