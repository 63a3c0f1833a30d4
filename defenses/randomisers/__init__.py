"""Local randomisers, one per file: what a client's device applies to a report before sending it."""
