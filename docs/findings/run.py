"""Runs the scripts of the findings, each in an environment that has its library, and prints their verdicts.

`python docs/findings/run.py` runs all, `python docs/findings/run.py flower_nan` one. The interpreter that runs this
file is tried first, then `<folder>/<library>/bin/python` in the folder that the variable FEDASSAY_FINDINGS names. A
script whose library no environment has is skipped, and the reason is printed. `--build` makes these environments.
`--text LIBRARY` prints the text for the maintainers of a library: its findings, with scripts.
"""

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent / "scripts"
ROOT = Path(__file__).resolve().parents[2]
FOLDER = "FEDASSAY_FINDINGS"
REQUIRES = {"diffprivlib": ["scikit-learn==1.6.1"]}
LIBRARY = re.compile(r"^Library: (\S+)==(\S+)\.$", re.MULTILINE)
SECONDS = 600


@dataclass(frozen=True)
class Outcome:
    """Lines that a script printed, or why it did not run."""

    lines: tuple[str, ...] = ()
    skipped: str = ""

    @property
    def verdicts(self) -> list[str]:
        return [line.removeprefix("verdict: ") for line in self.lines if line.startswith("verdict: ")]


def library(script: Path) -> tuple[str, str] | None:
    """Name and version of the library that a script needs; None for a module that scripts share."""
    found = LIBRARY.search(script.read_text(encoding="utf-8"))
    return (found[1], found[2]) if found else None


def scripts() -> list[Path]:
    return [script for script in sorted(SCRIPTS.glob("*.py")) if library(script)]


def run(script: Path) -> Outcome:
    name, version = library(script) or ("", "")
    python, reason = _interpreter(name, version)
    if not python:
        return Outcome(skipped=reason)
    with tempfile.TemporaryDirectory() as place:
        # Environments other than this one have no fedassay; the repository's folder may have any name.
        (Path(place) / "fedassay").symlink_to(ROOT)
        done = subprocess.run(
            [python, "-W", "ignore", script],
            env=os.environ | {"PYTHONPATH": place, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
    if done.returncode:
        raise RuntimeError(f"{script.name} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return Outcome(lines=tuple(done.stdout.splitlines()))


def build(folder: Path) -> None:
    """Make an environment per library that also sees the packages of this one, which has torch and scipy."""
    for name, version in sorted({library(script) or ("", "") for script in scripts()}):
        if name in ("opacus", "dp-accounting"):
            continue
        place = folder / name
        venv.create(place, with_pip=True)
        python = place / "bin" / "python"
        packages = [f"{name}=={version}", *REQUIRES.get(name, [])]
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        site = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
        (Path(site) / "zz_fedassay.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")


@cache
def _interpreter(name: str, version: str) -> tuple[Path | None, str]:
    found = []
    for python in _candidates(name):
        ask = f"import importlib.metadata as m; print(m.version({name!r}))"
        done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() == version:
            return python, ""
        found.append(f"{python} has {done.stdout.strip() or 'no ' + name}")
    return None, f"needs {name} {version}: {'; '.join(found)}"


def _candidates(name: str) -> Iterator[Path]:
    yield Path(sys.executable)
    if folder := os.environ.get(FOLDER):
        python = Path(folder) / name / "bin" / "python"
        if python.exists():
            yield python


TEXT = """\
To the maintainers of {name}

Fedassay audits privacy claims. Its audits and exact calculations of {name} {version} found {count} where a claim of the
documentation does not hold as we read it, or where it leaves a point open. Each part below quotes the claim, says what
happens, how the text can also be read, how the code or the text can be mended, and has a script that shows it.
Nothing of this is published. We publish a finding after you have answered it, together with your answer; please say if
you want more time, a private report, or see a mistake of ours. Where a thread of yours is known to us, the line "known
upstream" names it.
"""
HELPERS = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)


def text(name: str) -> str:
    """Return the text for the maintainers of a library; it needs no other file."""
    own = {script: found[1] for script in scripts() if (found := library(script)) and found[0] == name}
    pages = [(script, page) for script in own if (page := SCRIPTS.parent / f"{script.stem}.md").exists()]
    parts = [page.read_text(encoding="utf-8").strip() for _, page in pages]
    used = {word for script, _ in pages for word in HELPERS.findall(script.read_text(encoding="utf-8"))}
    for helper in sorted(used):
        if (shared := SCRIPTS / f"{helper}.py").exists():
            parts.append(
                f"# {shared.name}, which scripts above use\n\n```python\n{shared.read_text(encoding='utf-8')}```"
            )
    count = f"{len(pages)} place{'s' if len(pages) > 1 else ''}"
    first = TEXT.format(name=name, version=", ".join(sorted(set(own.values()))), count=count)
    # Links lead to files that the reader does not have; code may look like one.
    pieces = re.split(r"(^```.*?^```$)", "\n\n".join([first, *parts]) + "\n", flags=re.DOTALL | re.MULTILINE)
    plain = [re.sub(r"\[([^]]+)\]\((?!https?:)[^)]*\)", r"\1", one) for one in pieces[::2]]
    return "".join(one for pair in zip(plain, [*pieces[1::2], ""], strict=True) for one in pair)


def main(words: list[str]) -> int:
    libraries = sorted({name for name, _ in filter(None, map(library, scripts()))})
    if words[:1] == ["--text"]:
        if words[1:2] not in [[name] for name in libraries]:
            print(f"--text takes a library: {', '.join(libraries)}")
            return 2
        print(text(words[1]), end="")
        return 0
    if words == ["--build"]:
        if FOLDER not in os.environ:
            print(f"{FOLDER} must name a folder for the environments")
            return 2
        build(Path(os.environ[FOLDER]))
        return 0
    known = {script.stem: script for script in scripts()}
    if unknown := [word for word in words if word not in known]:
        print(f"no script {', '.join(unknown)}; scripts: {', '.join(known)}")
        return 2
    for name in words or known:
        outcome = run(known[name])
        shown = [f"skipped: {outcome.skipped}"] if outcome.skipped else outcome.lines if words else outcome.verdicts
        for line in shown:
            print(f"{name}: {line}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
