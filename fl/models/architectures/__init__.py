"""The models of the catalogue: one file per model, with a function of its name, ``(shape, classes) -> nn.Module``."""
