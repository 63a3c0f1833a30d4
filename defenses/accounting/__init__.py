"""Accounting: what releases cost, by dp-accounting (Google) wherever it can, and exactly where no library does."""
