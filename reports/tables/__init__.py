"""Tables of a report, their order, and how their numbers are printed."""
