"""Checks that attacks' fields share."""


def check_whole(name: str, number: object, least: int, *, told: str = "") -> None:
    """Raise ValueError unless it is a whole number of at least ``least``; ``told``: what else it may be."""
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ValueError(f"{name} must be a whole number >= {least}{told}, got {number!r}")
