"""What the adapter of Flower is made of: the grid in one process, hooks on strategies, and plays of frozen replies."""
