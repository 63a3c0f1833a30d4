"""Planning: a suite laid out in cells, and what the plan says before it runs."""
