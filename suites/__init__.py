"""Suites: their files, trials, cells (units of work) and runs. This is the only package where defenses and attacks
meet.
"""
