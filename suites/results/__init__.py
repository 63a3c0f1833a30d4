"""Results: records, the run's folder, checksums, and the outcome with its exit code."""
