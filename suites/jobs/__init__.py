"""Jobs: the units of work of a run, as data."""
