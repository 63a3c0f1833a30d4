"""Tables and answers about the claims of a run."""
