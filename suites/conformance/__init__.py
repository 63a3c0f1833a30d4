"""Conformance checks: what each kind of part, such as a defense or a data set, must do, be it of the catalogue or a
user's own.
"""
