"""Defenses of vertical federations: some protect the labels of one party, the others the columns of the other
parties.
"""
