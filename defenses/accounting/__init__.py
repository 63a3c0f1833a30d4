"""Accounting: the cost of releases, by dp-accounting (Google) where it can, and else by exact computation."""
