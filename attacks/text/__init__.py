"""Attacks on models of texts: which tokens are behind an upload, in which order, and what a model memorised."""
