"""Mutation tests: broken mechanisms and defenses, each audited beside its correct version."""
