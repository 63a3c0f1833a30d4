"""Commands: ``python -m dp_faults list | run | table | freeze``."""

import argparse
from pathlib import Path

from .case import KINDS, half, names
from .frozen import freeze
from .runner import main_line, read, run
from .table import HALVES, table
from .verdict import tool_names


def main(words: list[str] | None = None) -> int:
    """Carry out one command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dp_faults", description="Auditors judged on faults.")
    commands = parser.add_subparsers(dest="command", required=True)
    listed = commands.add_parser("list", help="cases with their half, and tools")
    listed.add_argument("--kind", choices=KINDS, default="")
    ran = commands.add_parser("run", help="judge versions that the file does not hold yet")
    ran.add_argument("--tool", required=True, help=f"{', '.join(tool_names())}, or the path of a file")
    ran.add_argument("--kind", choices=KINDS, default="")
    ran.add_argument("--half", choices=HALVES, default="")
    ran.add_argument("--case", default="", help="only cases of this name")
    ran.add_argument("--seconds", type=float, default=60.0, help="CPU seconds that a version may take")
    ran.add_argument("--seed", type=int, default=0)
    ran.add_argument("-o", "--output", type=Path, required=True, help="file of rows, to which new ones are appended")
    shown = commands.add_parser("table", help="the table in Markdown")
    shown.add_argument("files", nargs="+", type=Path)
    commands.add_parser("freeze", help="write the hashes of the frozen half; frozen files must not have changed")
    given = parser.parse_args(words)
    if given.command == "list":
        for kind, name in names(given.kind):
            print(f"{half(kind, name):12} {kind}/{name}")
        print(f"tools: {', '.join(tool_names())}")
    elif given.command == "run":
        if given.seconds <= 0:
            parser.error(f"--seconds must be > 0, got {given.seconds}")
        for row in run(
            given.tool,
            kind=given.kind,
            only_half=given.half,
            case=given.case,
            seconds=given.seconds,
            seed=given.seed,
            out=given.output,
        ):
            print(main_line(row), flush=True)
    elif given.command == "table":
        print(table([row for file in given.files for row in read(file)]))
    else:
        print(f"{freeze()} files are frozen")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
