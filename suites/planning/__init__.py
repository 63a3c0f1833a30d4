"""Planning: all cells of a suite, and what the planned run would do."""
