"""The house itself: its floors, its doors, and what it leaves alone."""

import ast
import importlib
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import fedassay
import pytest

ROOT = Path(fedassay.__file__).resolve().parent
NO_PART = {"tests", "build", "dist", "benchmarks", "docs", "runs"}
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


def test_the_help_and_the_import_load_neither_torch_nor_numpy():
    heavy = "[name for name in ('torch', 'numpy', 'pandas', 'sklearn', 'matplotlib', 'joblib') if name in sys.modules]"
    assert python(f"import sys, fedassay; dir(fedassay); print(*{heavy})") == []
    told = (
        "import sys\nfrom typer.testing import CliRunner\nfrom fedassay.cli.app import app\n"
        "for words in (['--help'], ['run', '--help'], ['--version'], ['list', 'metrics']):\n"
        "    assert CliRunner().invoke(app, words).exit_code == 0, words\n"
        f"print(*{heavy})"
    )
    assert python(told) == []


def test_listing_the_suites_or_a_wrong_kind_does_not_wait_for_torch():
    told = "import sys\nfrom typer.testing import CliRunner\nfrom fedassay.cli.app import app\n"
    told += "assert CliRunner().invoke(app, ['list', 'x']).exit_code == 2\nprint('torch' in sys.modules)"
    assert python(told) == ["False"]


@pytest.mark.processes
def test_audit_imports_only_numpy_scipy_and_the_standard_library():
    allowed = {"numpy", "scipy", *sys.stdlib_module_names}
    for path, tree in modules().items():
        if path.is_relative_to(ROOT / "audit"):
            for node in ast.walk(tree):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
                assert {name.partition(".")[0] for name in names} <= allowed, path


def test_no_module_of_reports_loads_torch():
    folder = ROOT / "reports"
    names = [".".join(["fedassay", *path.relative_to(ROOT).with_suffix("").parts]) for path in folder.rglob("*.py")]
    assert len(names) > 40
    code = f"import importlib, sys\nfor name in {names}:\n    importlib.import_module(name)\n"
    assert python(code + "print('torch' in sys.modules)") == ["False"]


def test_reports_read_a_run_without_torch(finished):
    page = str(finished.folder.parent / "page.md")
    told = "import sys\nfrom pathlib import Path\nfrom fedassay.reports.formats.write import write_report\n"
    told += f"write_report({str(finished.folder)!r}, md=Path({page!r}))\nprint('torch' in sys.modules)"
    assert python(told) == ["False"]


def test_runs_are_compared_and_gated_without_torch(finished):
    words = [["compare", str(finished.folder), str(finished.folder)], ["gate", str(finished.folder)]]
    told = "import sys\nfrom typer.testing import CliRunner\nfrom fedassay.cli.app import app\n"
    told += f"for words in {words}:\n    assert CliRunner().invoke(app, words).exit_code == 0, words\n"
    assert python(told + "print('torch' in sys.modules)") == ["False"]


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
    }
    assert seen == fedassay._HOMES


def test_an_attack_never_names_a_suite_or_a_defense_and_a_defense_never_an_attack():
    floors = {"attacks": {"suites", "defenses", "reports"}, "defenses": {"suites", "attacks", "reports"}}
    for path, tree in modules().items():
        above = floors.get(path.relative_to(ROOT).parts[0], set())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert not above & set((node.module or "").split(".")), path


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
