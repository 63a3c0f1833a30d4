"""Local DP in a federation: each client randomises a few sampled coordinates one by one, or chooses coordinates
privately.
"""
