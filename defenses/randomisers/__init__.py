"""Local randomisers, one a file: what a client's device does to one report before it leaves."""
