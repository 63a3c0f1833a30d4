"""Metrics of scores and of reconstructions that are reported beside bounds on epsilon."""
