"""Reading: the records, claims and arrays of a run's folder, and what is computed from them."""
