"""Jobs: the units of work of a run and the federations that they are about."""
