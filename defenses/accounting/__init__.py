"""Accounting: the privacy cost of releases, computed by the library dp-accounting (Google) where it can, and otherwise
exactly.
"""
