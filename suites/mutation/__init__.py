"""Mutation tests: broken mechanisms and defenses, each audited together with its correct version."""
