"""Runs a tool on cases: each version in a process of its own, with a limit of CPU seconds; what is done is kept."""

import json
import os
import resource
import signal
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .case import half, load, names
from .frozen import digest
from .verdict import Tool, Verdict, tool

VERSIONS = ("correct", "broken")
_HEAVY = {"loops": "torch", "opacus": "opacus"}
"""Imported before the processes of these kinds are made, so that they share it."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a tool said about one version.

    Args:
        outcome: ``found``, ``silent`` or ``could not run``.
        reason: why it could not run: library absent, refused, error, timeout, outside its purpose.
        seconds: CPU seconds that the process took.
        limit: CPU seconds that it was allowed.
        digest: sha256 of the case's file.
    """

    tool: str
    kind: str
    name: str
    half: str
    version: str
    outcome: str
    reason: str = ""
    words: str = ""
    epsilon_low: float | None = None
    seconds: float = 0.0
    limit: float = 0.0
    seed: int = 0
    digest: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        return self.tool, self.kind, self.name, self.version, self.digest


def read(file: Path) -> list[Row]:
    """Return the rows of a file; raises ValueError for a line that is none."""
    rows = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            rows.append(Row(**json.loads(line)))
        except (TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"{file}, line {number}: must be a row of `run`, got {line[:80]!r}") from error
    return rows


def run(
    name: str, *, kind: str = "", only_half: str = "", case: str = "", seconds: float = 60.0, seed: int = 0, out: Path
) -> Iterator[Row]:
    """Judge all versions that ``out`` does not hold yet, append their rows to it, and yield them.

    Args:
        name: of the tool, or the path of its file.
        kind, only_half, case: only cases of this kind, half, or name.
        seconds: CPU seconds that a version may take.
        seed: from which the seed of each version follows.
    """
    try:
        judge, stated = tool(name), ""
    except ModuleNotFoundError as absent:
        judge, stated = None, f"{absent.name} is not installed"
    done = {row.key for row in read(out)} if out.exists() else set()
    for each in names(kind):
        if (only_half and half(*each) != only_half) or case not in ("", each[1]):
            continue
        for version in VERSIONS:
            place: dict[str, Any] = {
                "tool": judge.NAME if judge else Path(name).stem,
                "kind": each[0],
                "name": each[1],
                "half": half(*each),
                "version": version,
                "digest": digest(*each),
                "limit": seconds,
                "seed": zlib.crc32(f"{seed} {each} {version}".encode()),
            }
            if Row(**place, outcome="").key in done:
                continue
            if judge is None:
                row = Row(**place, outcome="could not run", reason="library absent", words=stated)
            elif each[0] not in judge.KINDS:
                row = Row(**place, outcome="could not run", reason="outside its purpose")
            else:
                row = Row(**place, **_in_a_process(judge, place))
            with out.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(asdict(row)) + "\n")
            yield row


def _in_a_process(judge: Tool, place: dict[str, Any]) -> dict[str, Any]:
    """Return outcome, reason, words, epsilon_low and seconds of one version."""
    if heavy := _HEAVY.get(place["kind"]):
        with suppress(ModuleNotFoundError):
            import_module(heavy)
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        child = os.fork()
        if child == 0:
            _child(judge, place, answer)
        status, used = _ended(child, wall=4 * place["limit"] + 30)
        seconds = round(used.ru_utime + used.ru_stime, 2)
        if answer.exists():
            found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
            return found | {"seconds": seconds}
    timeout = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
    reason = "timeout" if timeout else "error"
    return {"outcome": "could not run", "reason": reason, "words": f"ended with status {status}", "seconds": seconds}


def _child(judge: Tool, place: dict[str, Any], answer: Path) -> None:
    """Judge one version in this process, write the answer, and end the process."""
    try:
        limit = int(place["limit"]) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        found = _answer(judge, place)
        # Renamed, so that an answer is whole.
        answer.with_suffix(".part").write_text(json.dumps(found), encoding="utf-8")
        answer.with_suffix(".part").rename(answer)
    finally:
        os._exit(0)


def _answer(judge: Tool, place: dict[str, Any]) -> dict[str, Any]:
    try:
        case = load(place["kind"], place["name"])
        subject = case.subject(broken=place["version"] == "broken", seconds=place["limit"])
        said = judge.judge(subject, place["seed"])
        if not isinstance(said, Verdict):
            raise TypeError(f"judge must return a Verdict, got {said!r}")
    except ModuleNotFoundError as absent:
        return {"outcome": "could not run", "reason": "library absent", "words": str(absent)}
    except Exception as error:
        words = f"{type(error).__name__}: {error}"[:400]
        return {"outcome": "could not run", "reason": "error", "words": words}
    reason = "refused" if said.outcome == "could not run" else ""
    return {"outcome": said.outcome, "reason": reason, "words": said.words[:400], "epsilon_low": said.epsilon_low}


def _ended(child: int, *, wall: float) -> tuple[int, resource.struct_rusage]:
    """Wait for a process, and kill it after so many seconds of wall time."""
    end, killed, pause = time.monotonic() + wall, False, 0.001
    while True:
        number, status, used = os.wait4(child, os.WNOHANG)
        if number:
            return status, used
        if time.monotonic() > end and not killed:
            os.kill(child, signal.SIGKILL)
            killed = True
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def main_line(row: Row) -> str:
    """Return one line for the terminal."""
    bound = "" if row.epsilon_low is None else f", epsilon >= {row.epsilon_low:.3g}"
    reason = f" ({row.reason})" if row.reason else ""
    return f"{row.kind}/{row.name} {row.version}: {row.outcome}{reason}{bound}, {row.seconds:.1f} s {row.words}"
