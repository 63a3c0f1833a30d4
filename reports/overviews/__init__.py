"""Tables of a whole run in their order, of chosen columns, and of several runs."""
