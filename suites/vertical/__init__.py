"""Train, attack and audit vertical federations, whose parties hold different columns of the same people."""
