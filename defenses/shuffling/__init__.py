"""What defenses behind a shuffler share: budgets, the randomiser of rows, the shuffler, the server's calibration."""
