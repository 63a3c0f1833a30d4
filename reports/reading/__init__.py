"""Reading: a run folder as records, claims and arrays, and what is derived from them."""
