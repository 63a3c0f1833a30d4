"""Kills audits of a system and runs of a suite at random moments, and compares what was kept with a run left alone.

    python benchmarks/killed_runs.py [--kills 30] [--seed 0] [--ways audit audit_2 local dask ray]

Each way is one command in one folder: it is begun, killed with all its processes by SIGKILL after a random share of the
time that the run left alone took, and begun again, until it was killed so often or ends; where it ends, the next one
begins in a folder of its own. At the end it is left alone. Lost: a run or row of the undisturbed folder that the other
does not hold; doubled: one that it holds twice; different: other numbers. ``dask`` and ``ray`` need their packages.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from damaged_files import SUITE, SYSTEM, verdict

AUDIT = ("audit", "system.py:system", "--trials", "120", "--accept-weak", "--keep", "kept")
RUN = ("run", "small.toml", "-o", "kept", "-j", "2", "--accept-weak")
RESUME = ("resume", "kept", "-j", "2")
WAYS = {
    "audit": (AUDIT, AUDIT),
    "audit_2": ((*AUDIT, "-j", "2"), (*AUDIT, "-j", "2")),
    "local": (RUN, RESUME),
    "dask": ((*RUN, "--backend", "dask"), (*RESUME, "--backend", "dask")),
    "ray": ((*RUN, "--backend", "ray"), (*RESUME, "--backend", "ray")),
}
"""The command that begins, and the one that goes on."""
PASSING = ("wall_s", "cpu_s", "peak_mem_mb")
"""Fields of a row that differ between two runs of one suite."""


def prepared(folder: Path) -> Path:
    folder.mkdir()
    (folder / "system.py").write_text(SYSTEM)
    (folder / "small.toml").write_text(SUITE)
    return folder


def begun(folder: Path, command: tuple[str, ...]) -> subprocess.Popen[bytes]:
    with (folder / "log").open("wb") as log:
        call = [sys.executable, "-m", "fedassay", *command]
        return subprocess.Popen(call, cwd=folder, stdout=log, stderr=log, start_new_session=True)


def left_alone(folder: Path, command: tuple[str, ...]) -> float:
    """Seconds that the command took."""
    since = time.perf_counter()
    code = begun(folder, command).wait()
    text = (folder / "log").read_text("utf-8", "replace")
    if code not in (0, 10, 11) or "Traceback" in text:
        raise SystemExit(f"fedassay {' '.join(command)} ended with {code}:\n{text}")
    return time.perf_counter() - since


def lines(folder: Path, way: str) -> Counter[str]:
    """The runs or rows that a folder holds, as text without times."""
    if way.startswith("audit"):
        found = (folder / "kept" / "replicas.jsonl").read_text().splitlines()
        return Counter(line for line in found[1:] if line)
    rows = map(json.loads, (folder / "kept" / "results.jsonl").read_text().splitlines())
    return Counter(json.dumps({name: row[name] for name in row if name not in PASSING}) for row in rows)


def ended_line(folder: Path) -> str:
    """The verdicts of the last command."""
    return verdict((folder / "log").read_text("utf-8", "replace"))


def tried(way: str, kills: int, seed: int) -> bool:
    rng, (first, again), killed, folders, ended = random.Random(seed), WAYS[way], 0, 0, list[Path]()
    with tempfile.TemporaryDirectory() as place:
        whole = prepared(Path(place, "whole"))
        seconds = left_alone(whole, first)
        folder: Path | None = None
        while killed < kills:
            if folder is None:
                folder, folders = prepared(Path(place, f"killed_{folders}")), folders + 1
            command = again if (folder / "kept" / "manifest.json").exists() or way.startswith("audit") else first
            if command is first and (folder / "kept").exists():  # Killed before it held anything.
                shutil.rmtree(folder / "kept")
            process = begun(folder, command)
            try:
                process.wait(rng.uniform(0.2, 1) * seconds)
                ended.append(folder)
                folder = None
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                killed += 1
        if folder is not None:
            command = again if (folder / "kept" / "manifest.json").exists() or way.startswith("audit") else first
            left_alone(folder, command)
            ended.append(folder)
        expected, faults = lines(whole, way), list[str]()
        for one in ended:
            held = lines(one, way)
            lost, more = expected - held, held - expected
            if lost or more or ended_line(one) != ended_line(whole):
                words = f"  {one.name}: {lost.total()} lost or different, {more.total()} doubled or different"
                faults.append(f"{words}, {ended_line(one)!r} for {ended_line(whole)!r}")
        words = f"{way}: {killed} kills in {folders} folders, {expected.total()} runs or rows each"
        print(f"{words}, {len(faults)} folders differ", *faults, sep="\n", flush=True)
        return not faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    given = parser.parse_args()
    sound = [tried(way, given.kills, given.seed) for way in given.ways]
    raise SystemExit(0 if all(sound) else 1)


if __name__ == "__main__":
    main()
