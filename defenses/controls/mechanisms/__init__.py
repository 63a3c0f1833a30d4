"""Mechanisms with a planted bug: ``mutant()`` in each file returns both samplers and the claim that they share."""
