"""Every block of docs/ and of the README runs and prints what the page shows, and the docs build without a warning.

A block with a title is a file. A `console` block holds commands after `$ `, an `sh` block commands to be copied; the
exit code must be 0 unless a comment names another. Each line of a `text` block after it must be printed, where `...`
stands for any text. A block after `<!-- next block needs LIBRARY -->` and its output count only where the library
is installed. Each page runs in a folder of its own.
"""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import fedassay
import pytest
from fedassay.suites.config.part_listing import all_errata

ROOT = Path(fedassay.__file__).resolve().parent
DOCS, README = ROOT / "docs", ROOT / "README.md"
SLOW = {
    *("your-own-project", "your-own-data", "your-own-parts", "preparation", "systems", "read-a-report", "vertical"),
    *("gate-in-ci", "add-a-defense", "index", "correlated", "migrate", "transfer", "epsilon"),
}
"""Pages whose blocks take more than a quarter of a minute: .ci/full runs them."""
BLOCK = re.compile(r'(?:^<!-- next block needs (\w+) -->\n)?^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)
CODE = re.compile(r"  # exit code (\d+)$")
NEEDS = re.compile(r"^<!-- needs (\w+) -->$", re.MULTILINE)
"""A library without which the page is skipped: .ci/libraries reads it in an environment of its own."""
INSTALLS = "python3 -m venv"
"""Such a line builds an environment of gigabytes: .ci/run runs it, and its output is not compared with the page."""

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="an installed wheel has no docs")


@dataclass(frozen=True)
class Block:
    language: str
    title: str
    text: str
    needs: str = ""


def blocks(page):
    return [Block(*found, needs=needs) for needs, *found in BLOCK.findall(page.read_text(encoding="utf-8"))]


def pages():
    return sorted(DOCS.rglob("*.md")) if DOCS.is_dir() else []


class Reader:
    """Runs the blocks of a page in order, in one folder."""

    def __init__(self, folder):
        self.folder, self.printed, self.ran = folder, "", 0
        self.left_out = False

    def read(self, block):
        match block.language:
            case _ if block.needs and importlib.util.find_spec(block.needs) is None:
                self.left_out = True
            case _ if block.title:
                place = self.folder / block.title
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(block.text, encoding="utf-8")
            case "python":
                self.printed, self.left_out = self._run([sys.executable, "-c", block.text], 0, block.text), False
            case "console" | "sh":
                mark = "$ " if block.language == "console" else ""
                lines = block.text.splitlines()
                assert all(line.startswith(mark) for line in lines), block.text
                commands = [line.removeprefix(mark) for line in lines]
                self.left_out = all(line.startswith(INSTALLS) for line in commands)
                self.printed = "".join(self._command(line) for line in commands)
            case "text" if not self.left_out:
                for line in block.text.splitlines():
                    pattern = ".*".join(re.escape(part) for part in line.split("..."))
                    assert re.search(pattern, self.printed), f"{line!r} was not printed:\n{self.printed}"
            case "text":
                pass
            case other:
                raise AssertionError(f"blocks of {other!r} cannot be run")

    def _command(self, line):
        code = CODE.search(line)
        words = CODE.sub("", line)
        if words.startswith(INSTALLS):
            return ""
        program, *rest = shlex.split(words)
        programs = {name: [sys.executable, "-m", name] for name in ("fedassay", "pytest")} | {
            "python": [sys.executable]
        }
        return self._run([*programs[program], *rest], int(code[1]) if code else 0, words)

    def _run(self, words, code, shown):
        # A page that stores data may not write into the reader's own cache.
        place = os.environ | {"FEDASSAY_CACHE": str(self.folder / "cache")}
        done = subprocess.run(
            words, cwd=self.folder, env=place, capture_output=True, text=True, check=False, timeout=900
        )
        assert done.returncode == code, f"{shown}\n{done.stdout}{done.stderr}"
        self.ran += 1
        return done.stdout


def slow_ones_marked(found):
    return [pytest.param(page, marks=pytest.mark.long) if page.stem in SLOW else page for page in found]


@pytest.mark.documents
@pytest.mark.parametrize("page", [*slow_ones_marked(pages()), README], ids=lambda page: page.stem)
def test_every_block_runs_and_prints_what_the_page_shows(page, tmp_path):
    for library in NEEDS.findall(page.read_text(encoding="utf-8")):
        pytest.importorskip(library, reason=f"the page needs {library}")
    reader = Reader(tmp_path)
    for block in blocks(page):
        reader.read(block)
    assert reader.ran or all(block.title for block in blocks(page))


def test_a_page_with_wrong_output_fails(tmp_path):
    reader = Reader(tmp_path)
    reader.read(Block("python", "", "print('a')"))
    with pytest.raises(AssertionError, match="was not printed"):
        reader.read(Block("text", "", "b"))
    with pytest.raises(AssertionError, match="blocks of 'fortran' cannot be run"):
        reader.read(Block("fortran", "", "b"))
    with pytest.raises(AssertionError):
        reader.read(Block("console", "", "$ fedassay list nothing"))
    with pytest.raises(AssertionError):
        reader.read(Block("console", "", "fedassay list suites"))
    reader.read(Block("sh", "", f"{INSTALLS} .venv"))
    reader.read(Block("text", "", "what only it prints"))
    reader.read(Block("python", "", "print('a')"))
    reader.read(Block("python", "", "import no_such_library", needs="no_such_library"))
    reader.read(Block("text", "", "what only the library prints"))
    reader.read(Block("python", "", "print('a')", needs="pytest"))
    with pytest.raises(AssertionError, match="was not printed"):
        reader.read(Block("text", "", "what only it prints"))


def test_commands_that_build_an_environment_are_run_by_ci():
    installs = [line for page in [*pages(), README] for line in page.read_text().splitlines() if INSTALLS in line]
    assert {line.removeprefix("$ ").rpartition(" && ")[2] for line in installs} == {
        ".venv/bin/fedassay run quick",
        ".venv/bin/python -m pytest -q",
    }
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert 'eval "$command"' in ci
    assert 'fedassay" run quick' in ci


OPTIONS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
MARKERS = [line.partition(":")[0] for line in OPTIONS["markers"]]


def selections():
    """The marker expressions of all calls of pytest without paths: the default run's, and those of `run` and `full`."""
    calls = [OPTIONS["addopts"].partition("-m ")[2].strip("'")]
    for name in ("run", "full"):
        text = (ROOT / ".ci" / name).read_text(encoding="utf-8")
        calls += re.findall(r'/python"? -m pytest -q .*-m "([a-z ]+)"$', text, re.MULTILINE)
    return calls


@pytest.mark.parametrize(
    "marked", [(), *((one,) for one in MARKERS), ("documents", "long"), ("simulations", "long"), ("processes", "long")]
)
def test_ci_runs_every_test_once(marked):
    names = {marker: marker in marked for marker in MARKERS}
    assert [eval(call, names.copy()) for call in selections()].count(True) == 1


@pytest.mark.documents
@pytest.mark.parametrize("findings", ["", pytest.param("all", marks=pytest.mark.long)])
def test_the_docs_build_strictly(tmp_path, monkeypatch, findings):
    monkeypatch.setenv("FEDASSAY_SITE_FINDINGS", findings)
    if missing := [name for name in ("mkdocs", "mkdocstrings") if importlib.util.find_spec(name) is None]:
        pytest.skip(f"{', '.join(missing)} not installed: pip install -e '.[dev]'")
    site = tmp_path / "site"
    words = [Path(sys.executable).with_name("mkdocs"), "build", "--strict", "-f", ROOT / "mkdocs.yml", "-d", site]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    built = [page for page in site.rglob("index.html") if "reference" not in page.parts]
    withheld = 0 if findings else len([page for page in pages() if page.parent.name == "findings"]) - 1
    assert len(built) == len(pages()) - withheld
    # Their scripts and their names in the search index count too.
    said = {path.name for path in site.rglob("*") if "NaN" in path.name or "flower_nan" in path.name}
    said |= {"index"} if "flower_nan" in (site / "search" / "search_index.json").read_text(encoding="utf-8") else set()
    assert bool(said) == bool(findings)
    reference = {page.parent.name: page.read_text(encoding="utf-8") for page in site.glob("reference/**/index.html")}
    assert all(f"{name}</code>" in reference["reference"] for name in fedassay.__all__)
    assert {"audit", "fl", "defenses.local.vectors", "attacks.gradient"} <= reference.keys()
    assert "ball_neighbours" in reference["audit.mechanism"]


def test_every_page_is_in_the_table_of_contents():
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    names = [page.relative_to(DOCS).as_posix() for page in pages()]
    assert [name for name in names if f": {name}\n" not in contents] == []


def test_suite_files_in_the_docs_are_toml():
    suites = [block.text for page in pages() for block in blocks(page) if block.title.endswith(".toml")]
    assert suites
    for text in suites:
        tomllib.loads(text)


def test_the_page_of_errata_has_a_row_for_every_item_with_its_class_and_tests_that_exist():
    text = (DOCS / "papers" / "errata.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if re.match(r"\| \w+ ?\d*:", line)]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    listed = [(name, item.split(":")[0]) for name, items in all_errata("defense").items() for item in items]
    assert sorted((re.split(r"[ :]", row[0])[0], re.split(r" \(", row[1])[0]) for row in rows) == sorted(listed)
    texts = [line.split(" | ") for line in text.splitlines() if re.match(r"\| (survey|overview), ", line)]
    assert len(texts) == 6
    assert {re.split(r" \(", row[1])[0] for row in texts} == {"False", "Loose but valid", "Slip", "Not stated"}
    for path, name in re.findall(r"`([\w/]+\.py)::(test_\w+)`", text):
        place = ROOT / path if path.startswith("tests/") else ROOT / "tests" / "defenses" / path
        assert f"def {name}(" in place.read_text(encoding="utf-8"), (path, name)
