"""Metrics of scores and reconstructions that are reported together with bounds on epsilon."""
