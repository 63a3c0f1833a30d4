"""Pairs of a broken and a correct version, written by engineers who had not seen the checks; a file is a family."""
