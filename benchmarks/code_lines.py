"""Code lines and files by folder: lines without blanks, comments and docstrings.

Run in the root of the repository::

    python benchmarks/code_lines.py             # by folder
    python benchmarks/code_lines.py --depth 2   # by the folders in them too
    python benchmarks/code_lines.py --check     # exit code 1 above a ceiling of pyproject.toml

The ceilings stand in ``[tool.fedassay.ceilings]``: ``product`` holds for the Python files of the package, ``files`` for
their number, and ``tests`` for the lines of the folder of that name. Benchmarks, docs and corpus have none.
Whoever raises a ceiling gives the reason in the commit.
"""

import argparse
import ast
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NO_PRODUCT = {"tests", "benchmarks", "docs", "corpus"}


def code_lines(text: str) -> int:
    """Return the number of lines of a module that hold code."""
    prose = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body[:1]:
                case [ast.Expr(value=ast.Constant(value=str())) as docstring]:
                    prose.update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in prose for number, line in lines
    )


def python_files(root: Path = ROOT) -> list[Path]:
    """Return all Python files that Git knows or would add, relative to the root."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    return [Path(name) for name in listed if (root / name).is_file()]


def by_folder(files: Iterable[Path], *, depth: int, root: Path = ROOT) -> dict[str, tuple[int, int]]:
    """Return folder -> code lines and files, of folders down to this depth."""
    lines, counts = Counter[str](), Counter[str]()
    for path in files:
        folder = "/".join(path.parts[:-1][:depth]) or "."
        lines[folder] += code_lines((root / path).read_text(encoding="utf-8"))
        counts[folder] += 1
    return {folder: (lines[folder], counts[folder]) for folder in sorted(lines)}


def sizes(root: Path = ROOT) -> dict[str, int]:
    """Return what the ceilings hold for: code lines of product and tests, and the number of the product's files."""
    found = by_folder(python_files(root), depth=1, root=root)
    product = [counts for folder, counts in found.items() if folder not in NO_PRODUCT]
    lines, files = map(sum, zip(*product, strict=True))
    return {"product": lines, "tests": found["tests"][0], "files": files}


def main() -> int:
    """Print the table, or check the ceilings; return the exit code."""
    parser = argparse.ArgumentParser(description="Code lines and files by folder.")
    parser.add_argument("--depth", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if not given.check:
        for folder, (lines, files) in by_folder(python_files(), depth=given.depth).items():
            print(f"{folder:50}{lines:8}{files:6}")
    ceilings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["fedassay"]["ceilings"]
    found = sizes()
    for name, ceiling in ceilings.items():
        print(f"{name}: {found[name]} of at most {ceiling}{' TOO MANY' if found[name] > ceiling else ''}")
    return int(given.check and any(found[name] > ceiling for name, ceiling in ceilings.items()))


if __name__ == "__main__":
    raise SystemExit(main())
