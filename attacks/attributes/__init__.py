"""Attribute and property inference attacks: infer a column of a known record, or a share of a client's data."""
