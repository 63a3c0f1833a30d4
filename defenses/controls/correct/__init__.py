"""Correct but unusual protections, which no audit must refute; written by engineers who had not seen the checks."""
