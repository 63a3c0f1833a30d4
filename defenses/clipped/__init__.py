"""Shared by defenses that clip to an L2 norm and add Gaussian noise: their fields and the claim that most of them
state.
"""
