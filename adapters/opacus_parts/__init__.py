"""What the adapter of Opacus is made of: the parts of a training, hooks on them, and data that log their reads."""
