"""Files for other tools: action, hook, container, citation and release are parsed, and their commands run."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from fedassay.cli.app import app
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def parsed(name):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


@pytest.fixture
def gate_steps():
    """The steps of the action by their names."""
    return {step["name"]: step for step in parsed("action.yml")["runs"]["steps"]}


def test_every_input_of_the_action_is_used_and_every_variable_is_one_of_its_own(gate_steps):
    action = parsed("action.yml")
    used = set()
    for step in gate_steps.values():
        used |= {re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value)[1] for value in step["env"].values()}
        # A value inside the script itself could carry commands of its own.
        assert "${{" not in step["run"]
        assert set(re.findall(r"\$\{?([A-Z_]+)", step["run"])) <= {*step["env"], "GITHUB_STEP_SUMMARY"}
    assert used == set(action["inputs"])


@pytest.mark.parametrize("baseline", ["", "baselines/main file"])
def test_the_scripts_of_the_action_call_the_command_with_whole_words(gate_steps, tmp_path, baseline):
    seen = tmp_path / "seen"
    command = tmp_path / "fedassay"
    command.write_text(f'#!/bin/sh\nfor word in "$@"; do echo "$word" >> {seen}; done\nexit 11\n')
    command.chmod(0o755)
    values = {"SUITE": "my suite.toml", "PRESET": "", "OUTPUT": "runs/a b", "BASELINE": baseline, "FAIL_ON": "fail"}
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": "summary.md", **values}
    codes = [
        subprocess.run(["bash", "-e", "-c", gate_steps[name]["run"]], env=environment, check=False).returncode
        for name in ("Run", "Gate")
    ]
    # The run's own verdict is left to the gate.
    assert codes == [0, 11]
    given = ["--baseline", baseline] if baseline else []
    assert seen.read_text().splitlines() == [
        *("run", "my suite.toml", "-o", "runs/a b"),
        *("gate", "runs/a b", *given, "--fail-on", "fail", "--junit", "runs/a b-junit.xml", "--summary", "summary.md"),
    ]


def test_every_option_of_action_and_hook_exists(gate_steps):
    (hook,) = parsed(".pre-commit-hooks.yaml")
    name, *words = shlex.split(hook["entry"])
    assert name in PROJECT["scripts"]
    for command, script in (("run", "Run"), ("gate", "Gate"), (words[0], None)):
        shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
        options = re.findall(r"--[a-z-]+", gate_steps[script]["run"]) if script else []
        assert "Usage" in shown
        assert [one for one in options if one not in shown] == []


def required_by(extra):
    """What an extra requires, extras of the project that it names included."""
    for one in map(Requirement, PROJECT["optional-dependencies"][extra]):
        yield from (two for name in one.extras for two in required_by(name)) if one.name == "fedassay" else [one]


def test_every_package_of_development_has_one_version_that_its_range_allows_and_the_commands_install_it():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    wanted = [*map(Requirement, PROJECT["dependencies"]), *required_by("dev")]
    assert {one.name for one in wanted if pinned.get(canonicalize_name(one.name), "0") not in one.specifier} <= {
        "psutil"
    }
    for name in (".ci/run", ".ci/full", ".ci/clusters"):
        assert re.search(r"install -q -c constraints\.txt -e .\.\[dev\]", (ROOT / name).read_text(encoding="utf-8"))


def test_the_citation_names_version_and_licence_of_the_project():
    citation = parsed("CITATION.cff")
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


def test_a_release_is_built_and_checked_before_it_is_published():
    jobs = parsed(".github/workflows/release.yml")["jobs"]
    assert jobs["publish"]["needs"] == "build"
    commands = [step["run"] for step in jobs["build"]["steps"] if "run" in step]
    assert ".ci/run" in commands
    (check,) = [command for command in commands if "tomllib" in command]
    for tag, code in ((f"v{PROJECT['version']}", 0), ("v9.9.9", 1)):
        environment = os.environ | {"GITHUB_REF_NAME": tag}
        # Some systems have python3 alone; an environment has both.
        found = f'PATH="{Path(sys.executable).parent}:$PATH"; {check}'
        done = subprocess.run(["bash", "-c", found], cwd=ROOT, env=environment, check=False, capture_output=True)
        assert done.returncode == code


def test_the_readme_of_a_release_links_to_its_tag_and_the_project_has_addresses(tmp_path):
    steps = parsed(".github/workflows/release.yml")["jobs"]["build"]["steps"]
    (script,) = [step["run"] for step in steps if step.get("shell") == "python"]
    for name in ("README.md", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    place = {"GITHUB_SERVER_URL": "https://h.example", "GITHUB_REPOSITORY": "o/n", "GITHUB_REF_NAME": "v0.1.0"}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=os.environ | place, check=True)
    links = re.findall(r"(!?)\[[^]]*\]\(([^)]*)\)", (tmp_path / "README.md").read_text(encoding="utf-8"))
    leads = {"!": "https://h.example/o/n/raw/v0.1.0/", "": "https://h.example/o/n/blob/v0.1.0/"}
    assert links
    for mark, address in links:
        assert address.startswith(leads[mark])
        assert (ROOT / address.removeprefix(leads[mark])).is_file()
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project.pop("urls")["Documentation"] == "https://o.github.io/n/docs/0.1.0/"
    assert project == PROJECT


def test_the_documentation_of_every_release_is_built_from_its_tag(tmp_path):
    steps = parsed(".github/workflows/release.yml")["jobs"]["scoreboard"]["steps"]
    (script,) = [step["run"] for step in steps if "worktree" in step.get("run", "")]
    command = tmp_path / "bin" / "mkdocs"
    command.parent.mkdir()
    command.write_text('#!/bin/sh\nfor last; do :; done\nmkdir -p "$last" && cp "$(dirname "$5")/page" "$last"\n')
    command.chmod(0o755)
    (repository := tmp_path / "clone").mkdir()
    git = "git -c user.name=a -c user.email=a@a.example"
    told = "; ".join(f"echo {n} > page; git add page; {git} commit -qm {n}; git tag v0.{n}.0" for n in (9, 10))
    environment = os.environ | {"PATH": f"{command.parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-ec", f"git init -q\n{told}\n{script}"], cwd=repository, env=environment, check=True)
    docs = repository / "board/site/docs"
    assert [(docs / f"0.{n}.0" / "page").read_text() for n in (9, 10)] == ["9\n", "10\n"]
    assert re.findall('href="(.*?)/"', (docs / "index.html").read_text()) == ["0.10.0", "0.9.0"]


def test_the_times_of_all_stages_are_printed_also_where_one_fails(tmp_path):
    spin = "python3 -c 'import time\nwhile time.process_time() < 1.6: pass'"
    script = f"set -e\n. .ci/stages\nstage first\nsleep 1\nstage second\n{spin}\nfalse\n"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    rows = re.findall(r"^ *(\d+) s +(\d+) CPU s  (\w+)$", done.stdout, re.MULTILINE)
    assert [name for _, _, name in rows] == ["first", "second", "together"]
    assert (int(rows[0][0]) >= 1, rows[0][1]) == (True, "0")
    assert int(rows[1][1]) >= 1


def test_the_scoreboard_of_a_release_is_the_site_of_the_suites_that_it_runs(tmp_path):
    jobs = parsed(".github/workflows/release.yml")["jobs"]
    assert ".ci/scoreboard board" in [step.get("run") for step in jobs["scoreboard"]["steps"]]
    # Stands in for the command line, and writes down how it was called: REFUTED is a result, wrong use is none.
    calls, command = tmp_path / "calls", tmp_path / "bin" / "fedassay"
    command.parent.mkdir()
    command.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo fedassay 9.9.9; exit; fi\n'
        f'echo "$@" >> {shlex.quote(str(calls))}\n'
        'if [ "$1" = run ]; then for last; do :; done; mkdir -p "$last"; exit "$CODE"; fi\n'
    )
    command.chmod(0o755)
    path = f"{command.parent}:{os.environ['PATH']}"

    def run(code, *words):
        environment = os.environ | {"PATH": path, "CODE": str(code)}
        return subprocess.run([ROOT / ".ci/scoreboard", *words], env=environment, cwd=ROOT, check=False).returncode

    board = str(tmp_path / "board")
    assert run(10, board) == 0
    lines = calls.read_text().splitlines()
    assert [line.split(" -o ")[0] for line in lines[:3]] == ["run quick", "run defenses", "run mutants --preset quick"]
    assert lines[3].startswith(f"site {board}/runs/defenses-9.9.9-")
    assert lines[3].endswith(f" -o {board}/site")
    # What lies there is not run again, and joins the site.
    assert run(0, board, "quick", "papers/survey") == 0
    assert [line.split(" -o ")[0] for line in calls.read_text().splitlines()[4:5]] == ["run papers/survey"]
    assert "papers_survey-9.9.9-" in calls.read_text().splitlines()[5]
    assert run(2, board, "unknown") != 0
    assert run(0) != 0


def test_the_container_starts_the_command_of_the_project():
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("ENTRYPOINT")] == ['ENTRYPOINT ["fedassay"]']
    assert any("pip install '/source[train]'" in line for line in lines)
