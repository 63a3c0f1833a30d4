"""Audits of privacy claims: how an audit is planned, run, measured and judged."""
