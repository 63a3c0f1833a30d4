"""``fedassay init``: a project whose own test passes at once, and fails with its reasons where the defense breaks."""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from email.message import Message
from importlib.metadata import packages_distributions
from pathlib import Path

import fedassay
import pytest
from fedassay.cli import init_command
from fedassay.cli.app import app
from fedassay.suites.execution import clusters as backend_choice
from typer.testing import CliRunner

FILES = {
    "my_defense.py",
    "suite.toml",
    "test_my_defense.py",
    "pytest.ini",
    "requirements.txt",
    ".gitignore",
    "README.md",
    ".github/workflows/privacy.yml",
    "baselines/main.json",
}


@pytest.fixture(scope="session")
def demo(built_once):
    """The project that the command writes, with what it measured. Read it, copy it, do not change it."""

    def build(place):
        with pytest.MonkeyPatch.context() as patched:
            patched.chdir(place)
            patched.setattr(sys, "path", list(sys.path))
            patched.setattr(backend_choice, "cores", lambda: 1)  # In this process: others would load torch again.
            done = CliRunner().invoke(app, ["init", "demo"])
        assert done.exit_code == 0, done.output
        sys.modules.pop("my_defense", None)

    return built_once("init", build) / "demo"


@pytest.fixture
def own_demo(demo, tmp_path):
    """A copy of it, to change."""
    return shutil.copytree(demo, tmp_path / "demo", ignore=shutil.ignore_patterns("__pycache__"))


@pytest.mark.simulations
@pytest.mark.parametrize("kind", ["opacus", "loop", "flower", "scores"])
def test_a_template_of_each_kind_has_a_file_that_its_next_command_accepts_and_a_training_its_test(
    kind, tmp_path, monkeypatch, say
):
    pytest.importorskip({"flower": "flwr", "opacus": "opacus"}.get(kind, "numpy"), reason="the template needs it")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    first = say("init", "own", f"--{kind}")
    there = {str(place.relative_to("own")) for place in Path("own").rglob("*") if place.is_file()}
    on_push = {"test_mine.py", "pytest.ini", "requirements.txt", ".github/workflows/privacy.yml"}
    assert (first.exit_code, there) == (0, {"mine.py"} | (on_push if kind != "scores" else set()))
    if kind != "scores":
        asked = Path("own/requirements.txt").read_text().splitlines()
        tree = ast.parse(Path("own/mine.py").read_text())
        roots = {one.module.partition(".")[0] for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)}
        assert {packages_distributions()[one][0] for one in roots - {"fedassay"}} <= {*asked}
    following = first.stdout.rpartition("next   cd own && ")[2].strip()
    assert say("init", "own", f"--{kind}").exit_code == 2
    monkeypatch.chdir("own")
    for command in following.split(" && "):
        program, *words = shlex.split(command)
        if program == "python":
            subprocess.run([sys.executable, *words], check=True)
        else:
            assert say(*words).exit_code == 0
    sys.modules.pop("mine", None)


def test_requirements_name_a_repository_only_where_the_package_does(monkeypatch, tmp_path, say):
    facts = Message()
    monkeypatch.setattr(init_command, "metadata", lambda _: facts)
    assert init_command._requirement("fedassay[opacus]").startswith("# ")
    printed, lines = say("init", str(tmp_path / "own"), "--opacus"), (tmp_path / "own/requirements.txt").read_text()
    number = 1 + [line.startswith("# Replace") for line in lines.splitlines()].index(True)
    assert f"requirements.txt, line {number}: name where" in printed.stdout
    facts["Project-URL"] = "Repository, https://example.org/fedassay"
    version = fedassay.__version__
    assert init_command._requirement("fedassay[opacus]") == (
        f"fedassay[opacus] @ git+https://example.org/fedassay@v{version}"
    )
    assert "edit " not in say("init", str(tmp_path / "named"), "--opacus").stdout


def test_a_template_is_for_one_thing(say, tmp_path):
    assert "got --opacus and --loop" in say("init", tmp_path / "own", "--loop", "--opacus").stderr
    assert not (tmp_path / "own").exists()


@pytest.mark.long
@pytest.mark.simulations
def test_what_it_measured_is_fine_and_its_audit_was_not_blind(demo):
    told = json.loads((demo / "runs" / "first" / "gate.json").read_text())["verdict_line"]
    assert told.startswith("OK: 1 claim NOT REFUTED, 1 control REFUTED as intended")


@pytest.mark.processes
def test_it_writes_a_project_and_overwrites_nothing(say, own_demo):
    there = {str(path.relative_to(own_demo)) for path in own_demo.rglob("*") if path.is_file()}
    assert there >= FILES
    before = tree(own_demo)
    again = say("init", own_demo)
    assert again.exit_code == 2
    assert "already holds my_defense.py, suite.toml" in again.stderr
    assert tree(own_demo) == before


HALF_THE_NOISE = ("noise_std = self.clip_norm", "noise_std = self.clip_norm / 2")


def halve_the_noise(folder):
    code = (folder / "my_defense.py").read_text()
    assert HALF_THE_NOISE[0] in code
    (folder / "my_defense.py").write_text(code.replace(*HALF_THE_NOISE))


def assert_all_that_one_needs_is_printed(text):
    assert "FAIL: claims REFUTED: mine; implementation checks failed: mine" in text
    assert "the published noise distribution implies epsilon 19.12, at most 8 allowed; in `law`" in text
    assert "again  pytest test_my_defense.py::test_the_claim_holds_and_nothing_got_worse" in text


@pytest.mark.processes
def test_its_test_passes_at_once_and_half_the_noise_fails_with_all_that_one_needs(own_demo, inner_pytest):
    code, text = inner_pytest(own_demo)
    assert code == 0, text
    halve_the_noise(own_demo)
    code, text = inner_pytest(own_demo)
    assert code == 1
    assert_all_that_one_needs_is_printed(text)


@pytest.mark.long
@pytest.mark.simulations
def test_every_file_that_the_workflow_names_is_written_and_asks_for_the_version_that_measured(demo):
    """actions/setup-python fails where its cache finds no such file, and pip where it is to install from one."""
    yaml = pytest.importorskip("yaml")
    steps = yaml.safe_load((demo / ".github" / "workflows" / "privacy.yml").read_text())["jobs"]["fedassay"]["steps"]
    cached = [step["with"]["cache-dependency-path"] for step in steps if "cache" in step.get("with", {})]
    installed = [re.findall(r"-r (\S+)", step["run"]) for step in steps if "pip install" in step.get("run", "")]
    assert any(step.get("run", "").startswith("pytest --fedassay-report=reports") for step in steps)
    assert cached == ["requirements.txt"]
    assert installed == [["requirements.txt"]]
    asked = [line for line in (demo / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in asked if not line.startswith("fedassay @ git+")] == ["pytest>=8"]
    assert f"fedassay-{fedassay.__version__}-py3-none-any.whl" in (demo / "README.md").read_text()
    assert all("{version}" not in (demo / name).read_text() for name in FILES)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "the project's folder must have a name, got ''"),
        ("/", "/ is the root of"),
        ("/../.", "/../. is the root of"),
    ],
)
def test_neither_no_name_nor_the_root_of_the_file_system_is_taken_for_a_folder(say, tmp_path, monkeypatch, name, words):
    monkeypatch.setattr(init_command, "write", lambda folder: pytest.fail(f"wrote into {folder}"))
    refused = say("init", name)
    assert refused.exit_code == 2
    assert words in refused.output
    assert list(tmp_path.iterdir()) == []


def test_what_is_to_be_typed_next_can_be_typed(say, tmp_path, monkeypatch):
    monkeypatch.setattr(init_command, "measure", lambda folder: "OK: made up")
    done = say("init", "sub dir/ü; true")
    assert done.exit_code == 0, done.output
    (line,) = [line for line in done.output.splitlines() if line.startswith("next")]
    assert shlex.split(line.partition("next")[2]) == ["cd", "sub dir/ü; true", "&&", "pytest"]


def test_where_nothing_could_be_written_nothing_is_said_to_be_taken_back(say, tmp_path, monkeypatch):
    def refused(path, *arguments, **options):
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(Path, "mkdir", refused)
    told = say("init", "proc/x")
    assert told.exit_code == 2
    assert told.output.startswith("proc/x/my_defense.py cannot be read or written: it does not exist")
    assert "stopped:" not in told.output


def test_what_cannot_be_taken_back_is_named(say, tmp_path, monkeypatch):
    def stopped(folder):
        monkeypatch.setattr(Path, "unlink", lambda path, missing_ok: refuse(path))
        raise KeyboardInterrupt

    def refuse(path):
        if path.name == "suite.toml":
            raise PermissionError(13, "Permission denied", str(path))
        path.rename(path.parent / "gone") if path.exists() else None

    monkeypatch.setattr(init_command, "measure", stopped)
    told = say("init", "demo")
    assert told.exit_code == 130
    assert "what was written in demo could not be removed: demo/suite.toml\n" in told.output


@pytest.mark.processes
def test_a_disk_that_fills_is_reported_with_the_file_that_it_did_not_take(tmp_path):
    """The limit of a file's size stands for the disk's; 8 blocks of 512 bytes hold every file of the project."""
    code = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0})); "
    code += "from fedassay.__main__ import main; sys.argv = ['fedassay', 'init', 'demo']; main()"
    for limit, file in ((1000, "demo/my_defense.py"), (4096, "demo/runs/first/")):
        done = subprocess.run(
            [sys.executable, "-c", code.format(limit)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(Path(fedassay.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 12, done.stderr
        assert re.search(
            rf"^INCOMPLETE: {file}\S* cannot be read or written: file too large$", done.stderr, re.MULTILINE
        )
        assert "stopped: what was written in demo was removed" in done.stderr
        assert list(tmp_path.iterdir()) == []


def tree(place):
    return {
        str(path.relative_to(place)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in place.rglob("*")
    }


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), RuntimeError("planted"), OSError(28, "No space left")])
@pytest.mark.parametrize("name", ["demo", "mine/demo", "."])
def test_what_is_stopped_half_way_leaves_only_what_was_there_and_can_be_given_again(
    say, tmp_path, monkeypatch, stop, name
):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "baselines").mkdir()
    before = tree(tmp_path)

    def stopped(folder):
        (folder / "runs" / "first" / "cells").mkdir(parents=True)
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__" / "my_defense.pyc").write_bytes(b"x")
        raise stop

    monkeypatch.setattr(init_command, "measure", stopped)
    if isinstance(stop, RuntimeError):
        with pytest.raises(AssertionError, match="planted"):
            say("init", name)
    else:
        assert say("init", name).exit_code == (130 if isinstance(stop, KeyboardInterrupt) else 12)
    assert tree(tmp_path) == before
    monkeypatch.setattr(init_command, "measure", lambda folder: "OK: made up")
    again = say("init", name)
    assert again.exit_code == 0, again.output
    assert (tmp_path / name / "suite.toml").is_file()


def occupied(place, how):
    match how:
        case "runs/first":
            (place / how).mkdir(parents=True)
        case "link":
            (place / "suite.toml").symlink_to("nowhere")
        case _:
            (place / how).parent.mkdir(parents=True, exist_ok=True)
            (place / how).write_text("mine")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("runs/first", "already holds runs/first"),
        ("link", "already holds suite.toml"),
        ("baselines/main.json", "already holds baselines/main.json"),
        ("baselines", "baselines is not a folder"),
        (".github/workflows", "workflows is not a folder"),
        ("runs", "runs is not a folder"),
    ],
)
def test_what_stands_in_the_way_is_reported_before_anything_is_written(say, tmp_path, how, words):
    (tmp_path / "demo").mkdir()
    occupied(tmp_path / "demo", how)
    before = tree(tmp_path)
    refused = say("init", "demo")
    assert refused.exit_code == 2
    assert words in refused.output
    assert tree(tmp_path) == before
