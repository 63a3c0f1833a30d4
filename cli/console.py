"""Print lines of text, with control characters removed.

A name in a suite file may hold a terminal's escape sequence or a line break, which could forge a line or clear the
screen.
"""

import typer


def print_lines(*lines: str, err: bool = False) -> None:
    """Print each string as exactly one line."""
    from ..reports.reading.printable import printable

    for line in lines:
        typer.echo(printable(line), err=err)
