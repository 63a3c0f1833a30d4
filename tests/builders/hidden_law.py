"""A protection with its published law hidden."""


def without_law(protection):
    """The same protection, except that it publishes no law."""
    kind = type(protection)
    hidden = type(f"Hidden{kind.__name__}", (kind,), {"law": lambda self, observer, plan, client: None})
    return hidden(**vars(protection))
