"""The package itself: its folders, its public names, what it loads, and what it leaves alone."""

import ast
import importlib
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from importlib import metadata
from pathlib import Path

import fedassay
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(fedassay.__file__).resolve().parent
NO_PART = {"tests", "build", "dist", "benchmarks", "docs", "runs", "corpus"}
LEAST = 60
"""Modules that there are at the very least: a walk that finds fewer has not walked."""


def packages():
    """Dotted names of the folders with an __init__.py."""
    found = {"fedassay"}
    for init in ROOT.rglob("__init__.py"):
        parts = init.parent.relative_to(ROOT).parts
        if parts and not (set(parts) & NO_PART) and not any(part.startswith(".") for part in parts):
            found.add(".".join(["fedassay", *parts]))
    return found


@cache
def modules():
    """Path -> syntax tree, of every module of the package."""
    trees = {}
    for package in packages():
        for path in ROOT.joinpath(*package.split(".")[1:]).glob("*.py"):
            trees[path] = ast.parse(path.read_text(encoding="utf-8"))
    assert len(trees) > LEAST
    return trees


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(not (ROOT / "pyproject.toml").is_file(), reason="an installed wheel has no pyproject.toml")
def test_the_wheel_packs_every_folder_and_no_other():
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert set(told["packages"]) == packages()
    assert len(told["packages"]) == len(set(told["packages"]))


def test_what_is_no_python_is_packed_where_it_lies():
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]
    patterns = [ROOT.joinpath(*name.split(".")[1:]) / pattern for name, globs in told.items() for pattern in globs]
    packed = {path for pattern in patterns for path in pattern.parent.glob(pattern.name)}
    lying = {
        path
        for package in packages() - {"fedassay"}
        for path in ROOT.joinpath(*package.split(".")[1:]).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert lying
    assert lying <= packed


def test_there_is_one_copy_of_the_package_in_this_process():
    copies = [name for name in sys.modules if name == "audit.claim" or name.endswith(".audit.claim")]
    importlib.import_module("fedassay.audit.claim")
    assert set(copies) <= {"fedassay.audit.claim"}
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    assert files.count(str(ROOT / "audit" / "claim.py")) == 1


COIN = "import math\n\n\ndef coin(x, rng):\n    return x == (rng.random() < math.e / (1 + math.e))\n"
IMPORTS = "import fedassay; dir(fedassay)"
LISTS = (
    "from fedassay.cli.list_command import listing\n"
    "assert all(map(listing, ('defenses', 'attacks', 'mutants', 'suites', 'metrics')))"
)


@pytest.mark.parametrize(
    ("heavy", "code", "commands"),
    [
        ("torch numpy pandas sklearn matplotlib joblib", IMPORTS, ()),
        ("torch numpy pandas joblib", "", ("--help", "run --help", "--version", "list metrics")),
        ("torch scipy pandas pydantic", LISTS, ()),
        ("torch pandas sklearn matplotlib", "", ("audit {here}/own.py:coin --epsilon 1 --inputs 0 1 --trials 2000",)),
    ],
)
def test_nothing_waits_for_libraries_that_it_does_not_use(heavy, code, commands, finished, tmp_path):
    (tmp_path / "own.py").write_text(COIN, encoding="utf-8")
    words = [command.format(run=finished.folder, here=tmp_path).split() for command in commands]
    told = f"import sys\n{code}\n"
    if words:
        told += "from typer.testing import CliRunner\nfrom fedassay.cli.app import app\n"
        told += f"for words in {words}:\n    assert CliRunner().invoke(app, words).exit_code == 0, words\n"
    assert python(f"{told}print(*[name for name in {heavy.split()} if name in sys.modules])") == []


INSTALL = "pip install 'fedassay[train]'"
WITHOUT_TORCH = {
    "--help": 0,
    "list defenses": 0,
    "schema result": 0,
    "schema claim": 0,
    "audit {here}/own.py:coin --epsilon 1 --inputs 0 1 --trials 2000 --html {here}/audit.html": 0,
    "audit {here}/own.py:coin --epsilon .2 --inputs 0 1 --trials 500 --keep {here}/kept --jobs 2": 10,
    "audit {here}/own.py:coin": 2,  # It states no claim.
    "audit {here}/scores.csv --one-run --higher-is-member --epsilon 1 --html {here}/scores.html": 10,
    "epsilon --delta 1e-5 --noise-multiplier 1 --rounds 10": 0,
    "epsilon --delta 1e-5 --history {here}/state.json": 0,
    "compare {run} {run}": 0,
    "gate {run} --junit {here}/junit.xml --summary {here}/summary.md": 0,
    "report {run} --html {here}/a.html --md {here}/a.md --latex {here}/a.tex --figures {here}/f --pack {here}/pack": 0,
    "site {run} -o {here}/site": 0,
}
"""Command -> its exit code."""
WITH_TORCH = (
    "run quick",
    "plan quick",
    "resume {run}",
    "watch {here}/own.py:coin",
    "doctor",
    "check fedavg",
    "list models",
    "init {here}/new",
    "epsilon --delta 1e-5 --history {here}/state.pt",
)
ABSENT = """
import sys
import fedassay

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from typer.testing import CliRunner
from fedassay.cli.app import app

for command, code in works.items():
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == code, (command, done.exit_code, done.output, done.exception)
    assert install not in done.output, command
for command in needing:
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 2, (command, done.exit_code, done.output, done.exception)
    assert install in done.stderr.splitlines()[-1], (command, done.output)
assert fedassay.open(run).gate().exit_code == 0
names = {name: lambda name=name: getattr(fedassay, name) for name in fedassay.__all__}
for name, call in {**names, "run()": fedassay.run, "resume()": lambda: fedassay.resume(run)}.items():
    try:
        call()
    except ImportError as error:
        assert install in str(error), (name, error)
        print(name)
"""


@cache
def base_distributions():
    """The distributions of an installation without extras: the dependencies, and theirs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found, left = {"fedassay"}, list(project["dependencies"])
    while left:
        one = Requirement(left.pop())
        if canonicalize_name(one.name) not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
            found.add(canonicalize_name(one.name))
            left += metadata.requires(one.name) or []
    return found


@pytest.mark.processes
@pytest.mark.skipif(not (ROOT / "pyproject.toml").is_file(), reason="an installed wheel has no pyproject.toml")
def test_the_declared_dependencies_are_enough_for_what_needs_no_training_and_the_rest_names_its_extra(
    finished, tmp_path
):
    (tmp_path / "own.py").write_text(COIN, encoding="utf-8")
    (tmp_path / "scores.csv").write_text("member,nonmember\n" + "1,0\n" * 50, encoding="utf-8")
    (tmp_path / "state.json").write_text('{"history": [[3.0, 0.2, 50]]}', encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "state.pt", "w"):
        pass
    absent = {
        name
        for name, owners in metadata.packages_distributions().items()
        if not {canonicalize_name(one) for one in owners} & base_distributions()
    }
    assert {"torch", "torchvision", "sklearn", "skimage", "lpips", "pytest"} <= absent
    place = {"run": finished.folder, "here": tmp_path}
    works = {command.format(**place): code for command, code in WITHOUT_TORCH.items()}
    needing = [command.format(**place) for command in WITH_TORCH]
    given = f"absent, works, needing, run, install = {(absent, works, needing, str(finished.folder), INSTALL)}\n"
    failed = set(python(given + ABSENT))
    assert failed >= {"audit_many_units", "watch", "Suite", "run()", "resume()"}
    free = {"audit_mechanism", "audit_outputs", "audit_scores", "audit_one_run", "Claim", "Function", "epsilon", "open"}
    assert free <= set(fedassay.__all__) - failed


@pytest.mark.processes
def test_audit_imports_only_numpy_scipy_and_the_standard_library():
    allowed = {"numpy", "scipy", *sys.stdlib_module_names}
    for path, tree in modules().items():
        if path.is_relative_to(ROOT / "audit"):
            for node in ast.walk(tree):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
                assert {name.partition(".")[0] for name in names} <= allowed, path


def test_every_module_states_what_it_is():
    assert [str(path) for path, tree in modules().items() if not ast.get_docstring(tree)] == []


def test_no_package_below_the_root_does_more_than_say_what_it_is():
    for path, tree in modules().items():
        if path.name == "__init__.py" and path.parent != ROOT:
            assert len(tree.body) == 1, path
            assert ast.get_docstring(tree), path


def test_every_import_inside_the_package_is_relative():
    # `import attacks` by accident must fail, not make a second copy.
    for path, tree in modules().items():
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            assert not [name for name in names if name.split(".")[0] == "fedassay"], path


def test_functions_fit_a_screen():
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                docstring = node.body[0] if ast.get_docstring(node) else None
                words = docstring.end_lineno - docstring.lineno + 1 if docstring else 0
                assert node.end_lineno - node.lineno - words < 60, f"{path}: {node.name}"


def test_no_check_takes_the_name_of_another():
    bound = [
        ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])
        for node in modules()[ROOT / "audit" / "check.py"].body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
    ]
    assert sorted(bound) == sorted(set(bound))


def test_every_name_at_the_root_is_what_its_home_calls_so():
    for name, home in fedassay._HOMES.items():
        assert getattr(fedassay, name) is getattr(importlib.import_module(f"fedassay.{home}"), name)
        assert name in dir(fedassay)


def test_type_checkers_see_the_names_at_the_root():
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    seen = {
        alias.asname: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
        if alias.asname
    }
    assert seen == fedassay._HOMES


def test_nothing_in_the_package_unpickles_code():
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called = node.func.attr, getattr(node.func.value, "id", "")
                assert called not in {("load", "pickle"), ("loads", "pickle")}, path
                given = {keyword.arg: getattr(keyword.value, "value", None) for keyword in node.keywords}
                if called == ("load", "np"):
                    assert given.get("allow_pickle") is False, path
                if called == ("load", "torch"):
                    assert given.get("weights_only") is True, path


def test_nothing_in_the_package_draws_from_a_global_generator():
    allowed = {"Generator", "Philox", "default_rng", "SeedSequence"}
    drawing = {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "manual_seed", "normal", "bernoulli"}
    for path, tree in modules().items():
        if path == ROOT / "fl" / "streams.py":  # It restores the global generators after a call of a user's own code.
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute):
                continue
            owner = ast.unparse(node.value)
            assert owner != "np.random" or node.attr in allowed, f"{path}: np.random.{node.attr}"
            assert owner != "torch" or node.attr not in drawing, f"{path}: torch.{node.attr}"
            assert owner != "random", f"{path}: random.{node.attr}"
