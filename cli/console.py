"""Saying: what a command prints, line by line, without control characters. A name in a suite may hold a terminal's
escape or a line's end, and must not forge a line or clear the screen.
"""

import typer


def say(*lines: str, err: bool = False) -> None:
    """Prints each as one line, whatever it holds."""
    from ..reports.reading.printable import printable

    for line in lines:
        typer.echo(printable(line), err=err)
