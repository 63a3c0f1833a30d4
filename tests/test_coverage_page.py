"""The page of coverage: names exist under their kinds, settings are accepted, and no row lacks an answer."""

import importlib.util
import re
import tomllib
from functools import cache
from pathlib import Path

import fedassay
import pytest
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.observer import LADDER
from fedassay.cli.list_command import listing
from fedassay.fl.algorithms import algorithm_from
from fedassay.fl.utility import UTILITIES
from fedassay.suites.config.catalogue import build

ROOT = Path(fedassay.__file__).resolve().parent
PAGE = ROOT / "docs" / "coverage.md"
SPAN, LINK = re.compile(r"`([^`]+)`"), re.compile(r"\]\(([^)#]+)")
ENTRY = re.compile(r"(not covered(?: yet)?: |(?P<kind>[a-z ]+?) (?=[`\[]))")
KINDS = {"defense", "control", "attack", "estimator", "metric", "model", "algorithm", "partition", "sampling", "canary"}
KINDS |= {"data set", "suite", "mutant", "observer", "unit", "adjacency", "module", "benchmark", "page"}
SINGULAR = {"adjacencies": "adjacency", "canaries": "canary"}
LISTED = {"control": "defenses", "data set": "datasets", "canary": "canaries"}

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="an installed wheel has no docs")


@cache
def known(kind):
    """The names of one kind, which is a word in the singular."""
    match kind:
        case "unit":
            return {str(one) for one in Unit}
        case "adjacency":
            return {str(one) for one in Adjacency}
        case "observer":
            return {str(one) for one in LADDER}
        case "metric":
            return {*listing("metrics"), *UTILITIES}
        case "control":
            return {name for name in listing("defenses") if name.startswith("control_")}
        case "defense":
            return {name for name in listing("defenses") if not name.startswith("control_")}
    return set(listing(LISTED.get(kind, f"{kind}s")))


def exists(kind, name):
    match kind:
        case "module":
            return importlib.util.find_spec(f"fedassay.{name}") is not None
        case "benchmark":
            return (ROOT / name).is_file()
    return name in known(kind)


def answers(text):
    """The last cells of all rows, with the section that each belongs to."""
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:2] == "| "]
    return [row for row in rows if row[0] != "section"]


def faults(cell):
    """What is wrong with the list of one cell."""
    found = []
    for entry in cell.split("; "):
        start = ENTRY.match(entry)
        if start is None:
            found.append(f"no kind of part and no reason: {entry!r}")
            continue
        kind = start["kind"]
        kind = kind and SINGULAR.get(kind, kind.removesuffix("s"))
        if kind is not None and kind not in KINDS:
            found.append(f"no kind of part: {kind!r}")
            continue
        names = [span for span in SPAN.findall(entry) if " = " not in span]
        if kind == "page":
            continue
        if kind is None:
            every = ("defense", "control", "attack")
            found += [f"no part {name}" for name in names if not any(exists(one, name) for one in every)]
        else:
            found += [f"no {kind} {name}" for name in names if not exists(kind, name)]
            found += [] if names else [f"no name: {entry!r}"]
        for setting in (span for span in SPAN.findall(entry) if " = " in span):
            found += refused(kind, names[-1], tomllib.loads(setting))
    return found


def refused(kind, name, setting):
    """Why a part does not accept a setting; nothing if it does."""
    try:
        if kind == "algorithm":
            algorithm_from({"name": name, "learning_rate": 0.1, "local_steps": 1} | setting)
        else:
            build(kind, name, setting)
    except ValueError as error:
        return [str(error)]
    return []


def test_every_name_on_the_page_exists_and_every_row_has_an_answer():
    rows = answers(PAGE.read_text(encoding="utf-8"))
    assert len(rows) > 150
    assert {len(row) for row in rows} == {3}
    assert {row[1]: wrong for row in rows if (wrong := faults(row[2]))} == {}


def test_all_pages_that_it_links_to_exist():
    links = LINK.findall(PAGE.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (PAGE.parent / link).is_file()] == []


def test_every_defense_but_the_naive_one_is_on_it():
    """Naive defenses without a claim, which no document names."""
    named = {name for row in answers(PAGE.read_text(encoding="utf-8")) for name in SPAN.findall(row[2])}
    assert known("defense") - named == {
        "gaussian_logits",
        "plain_noise",
        "plain_votes",
        "unprotected",
    }


def first_cells(page, title):
    """The names in the first cells of the table below a title of a page."""
    section = (PAGE.parent / page).read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line[:2] == "| "][1:]
    return [name for row in rows for name in SPAN.findall(row[0])]


@pytest.mark.parametrize(("page", "title"), [("vertical.md", "The attacks")])
def test_the_page_of_a_kind_of_federation_lists_its_attacks_once_each(page, title):
    kind = page.removesuffix(".md")
    own = {name for name, words in listing("attacks").items() if words.startswith(f"{kind}: ")}
    assert sorted(first_cells(page, title)) == sorted(own)


@pytest.mark.parametrize("page", ["vertical.md", "transfer.md"])
def test_the_page_of_a_kind_of_federation_lists_its_defenses_once_each(page):
    kind = page.removesuffix(".md")
    listed = {name for name, words in listing("defenses").items() if words.startswith(f"{kind}: ")}
    own = {name for name in listed if not name.startswith("control_")} - {"unprotected"}
    assert sorted(first_cells(page, "What a claim covers")) == sorted(own)


@pytest.mark.parametrize(
    ("cell", "wrong"),
    [
        ("defense `dp_sgd`; suite `quick`", 0),
        ("defense `dp_sgdd`", 1),
        ("attack `dp_sgd`", 1),
        ("not covered: it differs from `dlg` in nothing", 0),
        ("not covered: it differs from `dlgg` in nothing", 1),
        ("not covered", 1),
        ("defense, which has no name", 1),
        ("defenses `dp_sgd`, `dp_fedavgg`; module `audit.claimm`", 2),
        ('defense `pldp`, with `noise = "laplace"`', 0),
        ('defense `pldp`, with `noise = "loud"`', 1),
        ('algorithm `fedavg`, with `optimizer = "sgdd"`', 1),
    ],
)
def test_a_wrong_name_kind_or_setting_is_found(cell, wrong):
    assert len(faults(cell)) == wrong
