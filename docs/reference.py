"""Generates the API reference when the site is built: one page for the package, one per family of parts.

Findings in other libraries stay out of the site unless FEDASSAY_SITE_FINDINGS=all is set: maintainers hear of them
first.

Nothing is listed by hand: pages follow ``fedassay.__all__`` and the folders of the package. Source: docstrings.
"""

import ast
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("audit", "fl", "defenses", "attacks", "checks", "adapters", "suites", "reports", "cli")
INTRODUCTION = """\
# Python API

`import fedassay` takes milliseconds; each name is imported on first use. All other names are listed by folder.

"""
WITHHELD = os.environ.get("FEDASSAY_SITE_FINDINGS") != "all"
FINDINGS = """\
# Findings in public libraries

Findings go to the maintainers of a library first. They stand here when they have been answered.
"""


@event_priority(100)  # Before mkdocstrings reads the paths.
def on_config(config):
    """Add the pages to the navigation, and show griffe the package without the folders that are not part of it."""
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    config["site_name"] += f" {version[1]}"
    packages = list(_packages())
    pages = [{name.partition(".")[2]: _page(name)} for name in packages]
    if WITHHELD:
        config["nav"] = [one for one in config["nav"] if "Findings" not in one] + [{"Findings": "findings/index.md"}]
    config["nav"].append({"Reference": [{"fedassay": "reference/index.md"}, *pages]})
    # The repository root is the package: without this, a virtual environment in it would be read as a part of it.
    on_config.folder = tempfile.TemporaryDirectory(prefix="reference-")  # Deleted when Python ends.
    package = Path(on_config.folder.name) / "fedassay"
    package.mkdir()
    for entry in [*ROOT.glob("*.py"), *(ROOT / folder for folder in FOLDERS)]:
        if entry.exists():
            (package / entry.name).symlink_to(entry)
    config["plugins"]["mkdocstrings"].config["handlers"]["python"]["paths"] = [str(package.parent)]
    return config


def on_files(files: Files, config):
    """Write the pages, and leave out those of findings that are withheld."""
    if WITHHELD:
        kept = [one for one in files if not one.src_uri.startswith("findings/")]
        files = Files([*kept, File.generated(config, "findings/index.md", content=FINDINGS)])
    files.append(File.generated(config, "reference/index.md", content=_root_page()))
    for name in _packages():
        files.append(File.generated(config, _page(name), content=_package_page(name)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Point links to pages that are withheld to the page that says so."""
    return re.sub(r"\]\((\.\./)?findings/[^)]*\)", r"](\1findings/index.md)", markdown) if WITHHELD else markdown


def _packages() -> Iterator[str]:
    """Dotted name of every package with public names, top to bottom."""
    for folder in FOLDERS:
        for init in sorted((ROOT / folder).rglob("__init__.py")):
            if any(_public(path) for path in init.parent.glob("*.py")):
                yield ".".join(["fedassay", *init.parent.relative_to(ROOT).parts])


def _page(package: str) -> str:
    return f"reference/{package.partition('.')[2]}.md"


def _root_page() -> str:
    """The public names with one line each; those of ``fedassay.api`` in full, the others in their folder's page."""
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    homes = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_HOMES"
    )
    lines = [line.split(maxsplit=1) for line in (ast.get_docstring(tree) or "").splitlines() if line.startswith("    ")]
    rows = [f"| [`{name}`][fedassay.{homes[name]}.{name}] | {words} |" for name, words in lines]
    own = [_object(f"fedassay.api.{name}") for name, home in homes.items() if home == "api"]
    return "\n".join([INTRODUCTION, "| name | what it is |", "|---|---|", *rows, "", *own])


def _package_page(package: str) -> str:
    folder = ROOT.joinpath(*package.split(".")[1:])
    sections = [f"# {package}\n"]
    for path in sorted(folder.glob("*.py")):
        if names := _public(path):
            module = f"{package}.{path.stem}"
            sections.append(f"## {path.stem}\n\n{_summary(path)}\n")
            sections += [_object(f"{module}.{name}", level=3) for name in names]
    return "\n".join(sections)


def _object(name: str, level: int = 2) -> str:
    return f"::: {name}\n    options:\n      heading_level: {level}\n"


def _public(path: Path) -> list[str]:
    """Public functions and classes that a file defines and documents."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name[0] != "_" and ast.get_docstring(node)
    ]


def _summary(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return re.sub(r"``(.+?)``", r"`\1`", text)
