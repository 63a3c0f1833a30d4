"""Conformance checks: what a part of each kind must do, for the catalogue and for anybody's parts."""
