"""Defenses: each file defines one defense, which states its privacy claims; other files hold what several defenses
share.
"""
