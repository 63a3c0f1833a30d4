"""Tables of a report, one per file, and how their numbers are printed."""
