"""Run the command ``audit``, which audits a claim with a file of scores or with calls of a Python function."""

import csv
import importlib
import importlib.util
import json
import math
import sys
import traceback
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..audit.claim import Claim
from ..audit.estimators.given_scores import audit_scores
from ..audit.evidence import Design, checked_scores
from ..audit.finding import Finding
from ..audit.mechanism import trial_stream
from ..audit.mechanism.mechanism import DEFAULT_TRIALS, audit_mechanism
from ..audit.nearest import nearest
from ..audit.wording import plain
from ..suites.config.source import ConfigError
from ..suites.results.outcome import Outcome
from .errors import fail

_SIDES = ("member", "nonmember")
_Scores = dict[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """The options of ``fedassay audit``; an option that was not given is None."""

    seed: int
    alpha: float
    threshold: float | None
    inputs: tuple[str, str] | None
    trials: int | None
    batched: bool
    low_bits: bool


def stated_claim(**fields: Any) -> Claim:
    """Return the claim that the options state; turn a ValueError of ``Claim.stated`` into a ConfigError."""
    try:
        return Claim.stated(**fields)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def audit_target(target: str, claim: Claim, options: AuditOptions) -> Finding:
    """Audit the claim with the scores in a file, or with repeated calls of a function.

    Raises:
        ConfigError: an unknown kind of target, options that do not belong to it, or scores that cannot be judged.
        typer.Exit: the function raised an exception, which is printed.
    """
    suffix = Path(target).suffix.lower()
    if suffix in (".npz", ".csv"):
        _refuse(
            target,
            {
                "--inputs": options.inputs,
                "--trials": options.trials,
                "--batched": options.batched or None,
                "--low-bits": options.low_bits or None,
            },
        )
        scores = _read_scores(Path(target))
        return _with_config_errors(
            target,
            lambda: audit_scores(
                scores["member"],
                scores["nonmember"],
                claim,
                alpha=options.alpha,
                threshold=options.threshold,
                seed=options.seed,
            ),
        )
    if ":" not in target:
        raise ConfigError(
            f"cannot audit {target!r}: the target must be a .npz or .csv file of member and nonmember scores, "
            "package.module:function or path/to/file.py:function"
        )
    _refuse(target, {"--threshold": options.threshold})
    if options.inputs is None:
        raise ConfigError(f"{target} needs --inputs X0 X1: two neighbouring inputs as JSON, such as --inputs 0 1")
    x0, x1 = (_input(text) for text in options.inputs)
    mechanism = find_function(target)
    return _with_config_errors(
        target,
        lambda: audit_mechanism(
            mechanism,
            claim,
            inputs=(x0, x1),
            seed=options.seed,
            alpha=options.alpha,
            batched=options.batched,
            low_bits=options.low_bits,
            trials=DEFAULT_TRIALS if options.trials is None else options.trials,
        ),
    )


def finding_lines(target: str, finding: Finding, gate: Outcome, *, as_json: bool) -> list[str]:
    """Return the lines that ``fedassay audit`` prints: claim, evidence and verdict, as text or as one JSON object."""
    if as_json:
        claim = None if finding.claim is None else finding.claim.to_dict()
        report = {"target": target, "claim": claim, "finding": finding.to_dict(), "exit_code": gate.exit_code}
        return [json.dumps(report, indent=1, allow_nan=False)]
    lines = [f"claim  {target}  {finding.line()}"]
    if (measured := finding.measurement) is not None:
        seen = f"{measured.estimator}, {measured.trials}, alpha {plain(measured.alpha)}, {measured.threshold_policy}"
        lines.append(f"seen   {seen}; {measured.witness}")
    return [*lines, f"gate   {gate.verdict_line} (exit code {gate.exit_code})"]


def find_function(target: str) -> Callable[..., Any]:
    """Import and return the user's function named by ``package.module:function`` or ``path/to/file.py:function``.

    Raises:
        ConfigError: the module cannot be imported, or has no such function (known names are listed, nearest first).
    """
    place, _, name = target.rpartition(":")
    try:
        module = _module_of(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:  # A user's module may raise anything on import.
        raise ConfigError(f"cannot import {place}: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ConfigError(f"{place} has no function {name!r}; it has: {nearest(name, own) or 'no function'}")
    found = getattr(module, name)
    if not callable(found):
        raise ConfigError(f"{target} must be a function, got {type(found).__name__}")
    mechanism: Callable[..., Any] = found
    return mechanism


def _module_of(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"no such file: {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file")
    # As with `python file.py`: the file can import its neighbours.
    sys.path.insert(0, str(path.resolve().parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _with_config_errors(target: str, audit: Callable[[], Finding]) -> Finding:
    try:
        return audit()
    except Exception as error:
        # A note marks an error inside the user's mechanism: report it as a crash of that code, not as one of ours.
        if getattr(error, "__notes__", []):
            _fail_in_mechanism(target, error)
        if not isinstance(error, ValueError):
            raise
        raise ConfigError(str(error)) from None


def _fail_in_mechanism(target: str, error: Exception) -> NoReturn:
    """Print the error as Python does, with the frames below the call of the mechanism only, and exit with code 1."""
    shown = traceback.TracebackException.from_exception(error)
    link: traceback.TracebackException | None = shown
    while link is not None:
        ours = [n for n, frame in enumerate(link.stack, start=1) if frame.filename == trial_stream.__file__]
        del link.stack[: max(ours, default=0)]
        link = link.__cause__ or link.__context__
    fail(f"cannot audit {target}, because it raised an exception:", *"".join(shown.format()).splitlines(), code=1)


def _refuse(target: str, options: dict[str, object]) -> None:
    for option, value in options.items():
        if value is not None:
            kind = "a mechanism" if option != "--threshold" else "a file of scores"
            raise ConfigError(f"{option} can be given only with {kind}, not with {target}")


def _input(text: str) -> Any:
    try:
        # Without parse_constant Python accepts NaN and Infinity, which are not JSON.
        value = json.loads(text, parse_constant=_no_number)
    except ValueError as error:
        shown = """0 1, '[0, 0]' '[1, 0]' or '"no"' '"yes"'"""
        raise ConfigError(f"--inputs must be two JSON values, such as {shown}; got {text!r}: {error}") from None
    if not isinstance(value, list):
        return value
    try:
        array = np.array(value)
    except ValueError:
        return value
    return array if array.dtype.kind in "biuf" else value


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")


def _read_scores(path: Path) -> _Scores:
    if path.is_dir():
        raise ConfigError(f"{path} is a folder, not a file of scores")
    if not path.exists():
        raise ConfigError(f"no such file: {path}")
    found = _read_npz(path) if path.suffix.lower() == ".npz" else _read_csv(path)
    try:
        return {side: checked_scores(f"{path}: {side}", scores) for side, scores in found.items()}
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _read_npz(path: Path) -> _Scores:
    try:
        with zipfile.ZipFile(path) as members:
            names = [name.removesuffix(".npy") for name in members.namelist()]
        _check_names(names, path, "array")
        with np.load(path, allow_pickle=False) as arrays:
            found = {side: arrays[side] for side in _SIDES}
            # Score files written by a run record the design: scores of one run are dependent.
            design = str(arrays["design"]) if "design" in names else Design.INDEPENDENT.value
    except ConfigError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ConfigError(f"{path} is damaged, or is not an .npz file: {error}") from None
    except ValueError as error:  # Arrays of Python objects, among others: reading them could execute code.
        raise ConfigError(f"{path} cannot be read as .npz without unpickling: {error}") from None
    if design != Design.INDEPENDENT.value:
        raise ConfigError(
            f"the scores in {path} are dependent ({design}), but an audit needs one score from each of many "
            "independent runs, with and without the audited sample or client"
        )
    for side, array in found.items():
        if array.dtype.kind not in "biuf":
            raise ConfigError(f"{path}: the array {side} must hold numbers, got {array.dtype}")
    return found


def _read_csv(path: Path) -> _Scores:
    found: dict[str, list[float]] = {side: [] for side in _SIDES}
    ended: dict[str, int] = {}
    try:
        # utf-8-sig: spreadsheets write a byte-order mark, which would become part of the first column's name.
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file, skipinitialspace=True)
            names = [name.strip() for name in rows.fieldnames or []]
            _check_names(names, path, "column")
            rows.fieldnames = names
            for row in rows:
                for side in _SIDES:
                    text = (row[side] or "").strip()
                    if not text:
                        ended.setdefault(side, rows.line_num)
                        continue
                    # Columns may differ in length; a gap in the middle is a damaged file.
                    if side in ended:
                        raise ConfigError(
                            f"{path}, line {ended[side]}: the column {side} has an empty cell before its last score"
                        )
                    found[side].append(_number(text, f"{path}, line {rows.line_num}, {side}"))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path} cannot be read as CSV in UTF-8: {error}") from None
    return {side: np.array(values) for side, values in found.items()}


def _number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ConfigError(f"{where}: a score must be a number, got {text!r}") from None
    # Two large integers that become one float would be a tie that the scores do not have.
    if text.lstrip("+-").isdecimal() and math.isfinite(number) and Decimal(text) != Decimal(number):
        raise ConfigError(f"{where}: the score {text} cannot be stored exactly as float64: rescale the scores")
    return number


def _check_names(names: Sequence[str], path: Path, kind: str) -> None:
    # Of two columns with one name, the reader would silently keep the last.
    if any(names.count(side) != 1 for side in _SIDES):
        raise ConfigError(
            f"{path} must have one {kind} member and one {kind} nonmember, but it has: {', '.join(names) or 'none'}"
        )
