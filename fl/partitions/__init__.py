"""How samples are dealt to clients, and which clients and samples take part."""
