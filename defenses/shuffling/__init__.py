"""Defenses with a shuffler, and their baselines without one."""
