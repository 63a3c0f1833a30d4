"""Membership attacks on what an observer sees round by round."""
