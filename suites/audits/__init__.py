"""Audits of claims: how each is planned, run, measured and judged."""
