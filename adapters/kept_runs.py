"""Run a training loop many times on two neighbouring inputs, and keep the output of every run.

Each run has a generator of its own, keyed by (seed, input, number of the run): kept runs are the same whatever the
number of processes, and more runs can be added later. A run is written to a temporary file and renamed, so that a
killed command leaves no partial output. Each file ends with a checksum, and a run whose file was changed is made again.
"""

import errno
import hashlib
import inspect
import io
import json
import math
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..audit.output_file import check_inside, is_changed, parsed_json, with_checksum, write_atomically
from ..audit.parts import import_last_from_here
from ..fl.folder_lock import LOCK, locked
from .target import find_function, read_input

VERDICTS = "verdicts.json"
"""Name of the file of the verdicts that were given on a folder of runs."""
MOST_BY_DEFAULT = 1000
"""With at most so many trials per input, the outputs of a function are kept unless it is batched."""
_STREAM = 7
_FIRST = 3
_FIRST_IF_NAN = 8
"""Runs on each input that must all be NaN before the function is refused."""
_USABLE = "an audit needs outputs that are numbers, or texts that occur several times"
_USED = "biufUS"
"""Kinds of NumPy's types of numbers and texts."""
_NEARLY = 1e-3
"""Relative difference that repeated runs may have: kernels of an accelerator add in another order."""


@dataclass(frozen=True, kw_only=True)
class KeptTraining:
    """A function ``train(x, rng)``, its two inputs as JSON texts, and the seed of its runs."""

    target: str
    inputs: tuple[str, str]
    seed: int

    def facts(self, folder: Path) -> dict[str, Any]:
        """Return the facts that determine the outputs of the runs; runs in a ``folder`` with other facts belong to
        another training.
        """
        function, (place, _, name) = _function(self.target), self.target.rpartition(":")
        if place.endswith(".py"):
            # One text for all spellings, which stays as it is where file and folder are moved together.
            place = Path(os.path.relpath(os.path.realpath(place), os.path.realpath(folder))).as_posix()
        try:
            source = Path(inspect.getsourcefile(function) or "").read_bytes()
        except (OSError, TypeError):
            source = b""
        digest = hashlib.sha256(source).hexdigest()
        inputs = [json.loads(text) for text in self.inputs]
        return {"target": f"{place}:{name}", "inputs": inputs, "seed": self.seed, "source_sha256": digest}

    def output(self, arm: int, number: int) -> NDArray[Any]:
        """Return the output of one run; the global generators are seeded too, and restored afterwards.

        Raises:
            WrongOutput: an output that is no array of numbers or strings.
            ExitedProcess: a call of ``os._exit``, which would end the audit without a word.
        """
        from ..fl.streams import seeded

        # Philox, as in all audits of mechanisms; a word of its own for the global generators.
        streams = np.random.SeedSequence(self.seed, spawn_key=(_STREAM, arm, number)).spawn(2)
        rng = np.random.Generator(np.random.Philox(streams[0]))
        with seeded(int(streams[1].generate_state(1)[0])), refused_exit():
            value = _function(self.target)(read_input(self.inputs[arm]), rng)
        try:
            array = np.asarray(value)
        except (ValueError, TypeError, RuntimeError) as error:
            raise WrongOutput(f"{self._where(arm, number)} returned no array: {error}") from None
        if array.dtype.kind not in _USED or array.size == 0 or _mixed(value, array):
            raise WrongOutput(f"{self._where(arm, number)} must return numbers or strings, got {_kind(value, array)}")
        return array

    def _where(self, arm: int, number: int) -> str:
        return f"{self.target} in run {number} on input {arm}"


@cache
def _function(target: str) -> Callable[..., Any]:
    # Imported once per process, so that a function that keeps state between calls is noticed.
    return find_function(target)


class KeptRuns:
    """The outputs of a training loop's runs, in a folder with one file per run.

    Args:
        folder: of the runs; None is a folder in ``runs/`` named after the function and what determines its outputs.
        training: the function, its inputs and its seed.

    Raises:
        ValueError: for a folder that holds anything else, runs of another loop, or damaged facts about its runs.
    """

    def __init__(self, folder: Path | None, training: KeptTraining) -> None:
        facts = training.facts(folder or Path("runs", "new"))
        self.folder, self.training = folder or default_folder(training.target, facts), training
        self._facts = self.folder / "training.json"
        self._check(training.facts(self.folder))

    def outputs(
        self, trials: int, *, jobs: int = 1, show: Callable[[str], None] = print
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Make the runs that are missing, in ``jobs`` processes; ``show`` prints a line about the progress. Return the
        outputs of the first ``trials`` runs on the first and on the second input, each ``(trials, ...)`` with the shape
        of one output.

        Raises:
            ValueError: a function that ignores its generator or draws noise elsewhere, outputs that cannot be audited
                or differ in type or shape, or a link out of the folder.
            RunFailed: an exception of the function, or a process that died.
        """
        missing = [(arm, number) for number in range(trials) for arm in (0, 1) if not self._kept(arm, number, show)]
        if missing:
            self._start()
            total = 2 * trials
            show(f"runs   {total}, of which {total - len(missing)} are kept in {self.folder}")
            self._check_seed(trials)
            self._check_usable(trials)
            self._make([one for one in missing if not self._path(*one).exists()], total, jobs, show)
        return self._read(0, trials), self._read(1, trials)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock of the runs' folder while runs are made and judged; see ``held_folder``."""
        with held_folder(self.folder):
            self._check(self.training.facts(self.folder))
            # No run without its facts, which are written first.
            known_verdicts(self.folder / VERDICTS, kept=self._facts.exists())
            yield

    def share(self, look: Mapping[str, Any], alpha: float) -> float:
        """Spend the significance level of this verdict on kept runs, and return the level; see ``share_of``."""
        spend(self.folder / VERDICTS, look)
        return share_of(self.folder / VERDICTS, look, alpha)

    def _check(self, facts: Mapping[str, Any]) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{self.folder} is a file, but runs must be kept in a folder")
        if not self._facts.exists():
            left = (path for path in self.folder.iterdir() if path.suffix != ".part") if self.folder.is_dir() else ()
            if any(path.name not in (LOCK, VERDICTS) for path in left):
                raise ValueError(
                    f"{self.folder} is not empty and holds no runs of a training loop: name another folder"
                )
            return
        kept = _content(self._facts)
        changed = [name for name in facts if kept.get(name) != facts[name]]
        if changed:
            was, now = (", ".join(f"{name} {one.get(name)}" for name in changed) for one in (kept, facts))
            raise ValueError(
                f"{self.folder} holds runs of another training loop ({was}), got {now}: name another folder"
            )

    def _kept(self, arm: int, number: int, show: Callable[[str], None]) -> bool:
        """Whether a run of this training loop is kept as it was written; another file is moved out of the way."""
        path = self._path(arm, number)
        check_inside(path, self.folder)
        content = path.read_bytes() if path.is_file() else b""
        whole = content[-32:] == _seal(self.training, path, content[:-32]) and _array_of(content) is not None
        if path.exists() and not whole:
            aside = next(one for number in count() if not (one := path.with_suffix(f".changed{number or ''}")).exists())
            words = "was changed or damaged, or belongs to another run; the run is repeated"
            show(f"run    {path} {words}, and the file is now {aside.name}")
            path.replace(aside)
        return whole

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        check_inside(self._facts, self.folder)
        write_atomically(self._facts, json.dumps(self.training.facts(self.folder), sort_keys=True).encode())

    def _check_seed(self, trials: int) -> None:
        """Refuse a function whose first runs do not depend on the generator alone."""
        first = [self._kept_or_made(0, number) for number in range(min(_FIRST, trials))]
        again = self.training.output(0, 0)
        if not _close(first[0], again):
            raise ValueError(
                f"{self.training.target} returned another output when run 0 was repeated with the same generator: it "
                "keeps state between calls, draws noise elsewhere than from rng and the global generators of Python, "
                "NumPy and PyTorch, or imports code that has changed since the run was kept"
            )
        if first[0].dtype.kind == "f" and all(np.array_equal(first[0], one) for one in first[1:]) and len(first) > 1:
            raise ValueError(
                f"{self.training.target} returned the same output in {len(first)} runs with different generators: it "
                "must draw its initial weights, batches and noise from rng, and must not set a seed of its own"
            )

    def _check_usable(self, trials: int) -> None:
        """Refuse outputs that no audit could use, before the other runs are made."""
        first = [self._kept_or_made(arm, number) for number in range(min(_FIRST, trials)) for arm in (0, 1)]
        text = first[0].dtype.kind in "US"
        # So many different texts in the first runs leave no hope that enough of all runs repeat one.
        most = min(trials, math.ceil(math.sqrt(10 * trials) / 2) if text else _FIRST_IF_NAN)
        for number in range(_FIRST, most):
            if not _unusable(first):
                return
            first += [self._kept_or_made(arm, number) for arm in (0, 1)]
        if wrong := _unusable(first):
            raise ValueError(
                f"{self.training.target} returned {wrong} in the first {len(first)} runs: {_USABLE}. "
                f"Finished runs are kept in {self.folder}"
            )

    def _kept_or_made(self, arm: int, number: int) -> NDArray[Any]:
        if not self._path(arm, number).exists():
            self._raise(_made(self.training, self._path(arm, number), arm, number))
        return np.asarray(np.load(self._path(arm, number), allow_pickle=False))

    def _make(self, missing: list[tuple[int, int]], total: int, jobs: int, show: Callable[[str], None]) -> None:
        done, every = total - len(missing), max(1, total // 20)
        try:
            for failure in self._results(missing, jobs):
                self._raise(failure)
                done += 1
                if done % every == 0 or done == total:
                    show(f"run    {done}/{total}")
        except Exception as error:
            # By name: importing joblib here would slow down every command.
            if type(error).__name__ != "TerminatedWorkerError":
                raise
            words = f"a process that ran {self.training.target} died, perhaps for lack of memory or in compiled code"
            self._raise(Failure(words, crashed=True))

    def _results(self, missing: list[tuple[int, int]], jobs: int) -> "Iterable[Failure | None]":
        calls = [(self.training, self._path(arm, number), arm, number) for arm, number in missing]
        if jobs == 1:
            return (_made(*call) for call in calls)
        import joblib

        pool = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
        results: Iterable[Failure | None] = pool(joblib.delayed(_made)(*call) for call in calls)
        return results

    def _raise(self, failure: "Failure | None") -> None:
        if failure is not None:
            words = f"{failure.reason.rstrip('.')}. Finished runs are kept in {self.folder}"
            raise RunFailed(words) if failure.crashed else ValueError(words)

    def _path(self, arm: int, number: int) -> Path:
        return self.folder / f"input{arm}" / f"run{number:06d}.npy"

    def _read(self, arm: int, trials: int) -> NDArray[Any]:
        first, found = self._kept_or_made(0, 0), [self._kept_or_made(arm, number) for number in range(trials)]
        for number, one in enumerate(found):
            if wrong := _unlike(first, one, f"in run {number} on input {arm}"):
                raise ValueError(f"{self._path(arm, number)}: {wrong}; remove this file, and the run is repeated")
        return np.stack(found)


def default_folder(target: str, facts: Mapping[str, Any]) -> Path:
    """Return the folder of kept runs if no option names one; the folder is named after the target and the facts that
    determine its runs.
    """
    text = json.dumps(dict(facts), sort_keys=True)
    return Path("runs") / f"audit-{target.rpartition(':')[2]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


@contextmanager
def held_folder(folder: Path) -> Iterator[None]:
    """Create the folder of kept runs if it is missing, and hold its lock; a folder that cannot be written needs no
    lock.

    Raises ValueError if another process holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder))
        except OSError as error:
            # An archive, whose verdicts can be given again.
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
        yield


def known_verdicts(path: Path, *, kept: bool) -> list[str]:
    """Return the verdicts that were already given on kept runs; ``path``: their file, ``kept``: whether there are runs.

    Where there are none yet, an empty file is written, without which no run may be kept: levels that were spent and are
    not known would be spent again.

    Raises ValueError for a damaged file, one without a checksum, none where runs are kept, and for a link out of
    its folder.
    """
    check_inside(path, path.parent)
    if not path.exists():
        if kept:
            words = "the folder holds runs, and earlier verdicts on them would be lost: name another folder"
            raise ValueError(f"{path} is missing, but {words}")
        _write_verdicts(path, [])
    looks = _content(path, checked=True).get("verdicts")
    if not isinstance(looks, list) or not all(isinstance(one, str) for one in looks):
        raise ValueError(
            f"{path} holds no list of verdicts, so it is unknown to which audit the runs belong: name another folder"
        )
    return looks


def share_of(path: Path, look: Mapping[str, Any], alpha: float) -> float:
    """Return the significance level of a verdict on kept runs, in (0, alpha): half of alpha for the first verdict on
    these runs, a quarter for the second. ``look``: what distinguishes this verdict from others; ``path``: the file of
    earlier verdicts, see ``known_verdicts``. The folder must be locked.

    The levels of all verdicts add up to alpha, so that runs may be added after a verdict was seen. A level is spent by
    ``spend``, when the verdict is there: an audit that was interrupted has shown nothing of its runs, and costs none.
    """
    looks, text = known_verdicts(path, kept=True), json.dumps(look, sort_keys=True)
    return alpha / 2.0 ** ((looks.index(text) if text in looks else len(looks)) + 1)


def spend(path: Path, look: Mapping[str, Any]) -> None:
    """Record that a verdict on kept runs was given, before anybody sees this verdict; arguments as for ``share_of``."""
    looks, text = known_verdicts(path, kept=True), json.dumps(look, sort_keys=True)
    if text not in looks:
        _write_verdicts(path, [*looks, text])


def _write_verdicts(path: Path, looks: list[str]) -> None:
    write_atomically(path, json.dumps(with_checksum({"verdicts": looks}), indent=1).encode())


class WrongOutput(ValueError):
    """Raised for an output of the user's function that no audit can use."""


class RunFailed(Exception):
    """An exception of the user's training loop, or the end of its process, as one line."""


@dataclass(frozen=True)
class Failure:
    """The reason why a run was not kept; ``crashed``: whether the user's function raised an exception, and did not
    return something unusable.
    """

    reason: str
    crashed: bool = False


class ExitedProcess(BaseException):
    """The error for a call of ``os._exit`` in the user's function. This error is no ``Exception``, so that the function
    does not catch it.
    """


@contextmanager
def refused_exit() -> Iterator[None]:
    """Turn a call of ``os._exit`` in this process into an exception, which can be reported."""
    exit_now, process = os._exit, os.getpid()

    def report(code: int) -> NoReturn:
        # Processes that the function itself forks end by the same call, and must end.
        if os.getpid() != process:
            exit_now(code)
        raise ExitedProcess(f"os._exit({code})")

    os._exit = report  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = exit_now


def _made(training: KeptTraining, path: Path, arm: int, number: int) -> Failure | None:
    """Make and keep one run; return why it failed, or None. Called in worker processes."""
    import_last_from_here()
    place = f"in run {number} on input {arm}"
    try:
        output = training.output(arm, number)
    except WrongOutput as error:
        return Failure(str(error))
    except ExitedProcess as error:
        return Failure(f"{training.target} ended its process by {error} {place}", crashed=True)
    except (Exception, SystemExit) as error:  # A training loop may raise anything, and may call sys.exit.
        return Failure(f"{training.target} raised {_short(error)} {place}", crashed=True)
    first = path.parent.parent / "input0" / path.with_stem(f"run{0:06d}").name
    if first.exists() and (wrong := _unlike(np.load(first, allow_pickle=False), output, place)):
        return Failure(f"{training.target} returned {wrong}")
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    np.save(content, output, allow_pickle=False)
    # Readers of arrays leave out what follows the array.
    write_atomically(path, content.getvalue() + _seal(training, path, content.getvalue()))
    return None


def _seal(training: KeptTraining, path: Path, content: bytes) -> bytes:
    """The checksum of a kept run, which a run of another input, number or training loop does not have."""
    place = json.dumps([training.facts(path.parent.parent), path.parent.name, path.name], sort_keys=True)
    return hashlib.sha256(place.encode() + content).digest()


def _array_of(content: bytes) -> NDArray[Any] | None:
    """The array of a kept run; None where it holds none of numbers or texts, although its checksum is right."""
    with suppress(Exception):  # For damaged headers, numpy raises errors of many kinds.
        found = np.asarray(np.load(io.BytesIO(content), allow_pickle=False))
        return found if found.dtype.kind in _USED and found.size else None
    return None


def _mixed(value: Any, array: NDArray[Any]) -> bool:
    """Whether NumPy turned numbers into texts because they stand among texts."""
    if array.dtype.kind not in "US" or isinstance(value, np.ndarray):
        return False
    return not all(isinstance(one, str | bytes) for one in _leaves(value))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


def _kind(value: Any, array: NDArray[Any]) -> str:
    if value is None:
        return "nothing"
    if _mixed(value, array):
        return f"{type(value).__name__} of {' and '.join(sorted({type(one).__name__ for one in _leaves(value)}))}"
    if isinstance(value, int):
        return "a whole number of more than 64 bits"
    if array.dtype.kind == "O" and not isinstance(value, np.ndarray):
        return type(value).__name__
    return f"{type(value).__name__} of {array.dtype}, shape {array.shape}"


def _unusable(outputs: Sequence[NDArray[Any]]) -> str:
    """What makes these outputs of both inputs useless; empty where nothing does."""
    if outputs[0].dtype.kind == "f" and all(np.isnan(one).all() for one in outputs):
        return "only NaN"
    # Stacked, because texts of different lengths have types of different widths.
    if outputs[0].dtype.kind in "US" and len({one.tobytes() for one in np.stack(outputs)}) == len(outputs):
        return "a different text"
    return ""


def _unlike(first: NDArray[Any], output: NDArray[Any], place: str) -> str:
    """How an output differs in type or shape from that of the first run; empty where it does not."""
    if output.shape == first.shape and (output.dtype.kind in "US") == (first.dtype.kind in "US"):
        return ""
    one, other = (f"{array.dtype} of shape {array.shape}" for array in (output, first))
    return f"{one} {place}, but {other} in run 0 on input 0: all outputs must have one type and shape"


def _short(error: BaseException) -> str:
    """The exception with the line of the user's code that raised it."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" not in frame.filename]
    own = [frame for frame in own if frame.filename != __file__]
    words = f"{type(error).__name__}: {' '.join(str(error).split())}" if str(error) else type(error).__name__
    if not own:
        return words
    return f"{words} ({Path(own[-1].filename).name}, line {own[-1].lineno}: {own[-1].line})"


def _close(one: NDArray[Any], other: NDArray[Any]) -> bool:
    if one.shape != other.shape or one.dtype.kind != other.dtype.kind:
        return False
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, other))
    scale = float(np.abs(one[np.isfinite(one)]).max(initial=0.0))
    return bool(np.allclose(one, other, rtol=_NEARLY, atol=_NEARLY * scale, equal_nan=True))


def _content(path: Path, *, checked: bool = False) -> dict[str, Any]:
    found = None
    with suppress(ValueError):
        found = parsed_json(path.read_bytes())
    if not isinstance(found, dict) or (checked and is_changed(found)):
        raise ValueError(
            f"{path} was changed or damaged, so it is unknown to which audit the runs belong: name another folder"
        )
    return found
