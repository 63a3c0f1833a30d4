"""Reading sample: sentences of the project, drawn by a seed, for a reader who has not seen it.

Run ``python benchmarks/reading_sample.py [--seed N] [--count N]``. It draws a third from public docstrings, a third
from error messages and a third from pages (README, docs, templates of reports). The reader knows differential privacy
and federated learning, and marks each sentence as clear at first reading or not. Bar: 28 of 30.
"""

import argparse
import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CODE = ("audit", "attacks", "defenses", "fl", "suites", "reports", "cli", "api.py")
_SHORTEST = 25
"""Characters below which a fragment is a heading or a label."""


def sources() -> Iterator[Path]:
    """Every file of the package, without tests and benchmarks."""
    for name in CODE:
        place = ROOT / name
        yield from sorted(place.rglob("*.py")) if place.is_dir() else [place]


def docstrings() -> Iterator[tuple[str, str]]:
    """The first paragraph of every public docstring."""
    for path in sources():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                name = getattr(node, "name", path.stem)
                text = ast.get_docstring(node)
                if text and not name.startswith("_"):
                    yield f"{path.relative_to(ROOT)}:{name}", " ".join(text.split("\n\n")[0].split())


def messages() -> Iterator[tuple[str, str]]:
    """The text of every error that is raised with a literal, ``{...}`` for what is filled in."""
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                text = _literal(node.exc.args[0])
                if " " in text:  # A single word is an argument of a function that builds the message.
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", text


def _literal(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else "{" + ast.unparse(part.value) + "}"
            for part in node.values
            if isinstance(part, ast.Constant | ast.FormattedValue)
        )
    return ""


def sentences() -> Iterator[tuple[str, str]]:
    """Sentences of the pages, without code, tables and links' addresses."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for path in pages:
        text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        text = re.sub(r"\]\([^)]*\)", "]", text)
        prose = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "#", "!", ":::"))]
        for paragraph in "\n".join(prose).split("\n\n"):
            for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`*\[])", " ".join(paragraph.split())):
                yield str(path.relative_to(ROOT)), sentence


def main() -> None:
    """Print the sample."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=30)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    for kind, found in (("docstring", docstrings()), ("message", messages()), ("page", sentences())):
        eligible = [(place, text) for place, text in found if len(text) >= _SHORTEST]
        for number, (place, text) in enumerate(rng.sample(eligible, asked.count // 3), 1):
            print(f"{kind} {number} ({place})\n    {text}\n")


if __name__ == "__main__":
    main()
