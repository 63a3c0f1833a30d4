"""Train, attack and audit vertical federations."""
