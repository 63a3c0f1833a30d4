"""Audits of evidence that the user supplies: scores of independent or clustered runs, or of canaries of one run."""
