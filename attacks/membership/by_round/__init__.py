"""Membership attacks that use what an observer sees in each round."""
