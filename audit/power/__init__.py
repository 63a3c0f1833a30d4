"""Power: thresholds chosen in advance, trials needed, and the smallest epsilon that a design refutes."""
