"""Results: records, the run folder, checksums, and the outcome with its exit code."""
