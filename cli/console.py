"""Print lines of text, with control characters removed.

A name in a suite file may hold a terminal's escape sequence or a line break, which could forge a line or clear the
screen. A reader that closes the pipe, such as ``head -1``, ends the printing and not the command.
"""

import io
import sys
from typing import Any

import typer


def print_lines(*lines: str, err: bool = False) -> None:
    """Print each string as exactly one line."""
    from ..reports.reading.printable import printable

    for line in lines:
        typer.echo(printable(line), err=err)


class _Output(io.FileIO):
    """A standard stream that drops what is written after its reader has closed the pipe."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes
        except OSError as error:  # That of a full disk would name no file.
            raise OSError(error.errno, error.strerror, "standard output") from error


def keep_running_without_reader() -> None:
    """Let the command go on, with its own exit code, when the reader of its output closes the pipe."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        # Only the streams that Python opened: a caller's replacement stays, and so does a closed one (None).
        if isinstance(stream, io.TextIOWrapper) and stream is getattr(sys, f"__{name}__"):
            raw = _Output(stream.fileno(), "w", closefd=False)
            unbuffered = stream.line_buffering or stream.write_through
            text = io.TextIOWrapper(
                io.BufferedWriter(raw), encoding=stream.encoding, errors=stream.errors, line_buffering=unbuffered
            )
            setattr(sys, name, text)
