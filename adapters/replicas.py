"""Audits a foreign system by independent runs with and without one planted unit, as many as the planner names.

Each run is scored by the exact log-likelihood ratio of a broken version of the claimed mechanism, for a worst-case
adversary who knows all other rows. Half of alpha is for bets on these scores (``audit.betting``), which may end the
audit after any run. The other half is for the errors that all runs make at a threshold that was fixed by simulation
before the first run (Clopper and Pearson 1934). Both hold for any mechanism. The audit stops early if the runs so
far made too many errors for all of them to refute the claim, if the others made none. The projections of finished runs
are kept in a file, so that an interrupted audit goes on from there.
"""

import errno
import hashlib
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..audit.arrays import FloatArray
from ..audit.bisection import fewest
from ..audit.claim import Claim
from ..audit.estimators.release_tests import (
    RUNS,
    BrokenRelease,
    GaussianRelease,
    ReleaseTest,
    audit_by_bets,
    audit_release_tests,
    chance_of_best,
    could_refute,
    counted_errors,
    design_test,
    errors_refute,
    expected_measurement,
    expected_scores,
    simulated_errors,
    simulated_release_points,
)
from ..audit.evidence import Projections, Setting
from ..audit.finding import (
    WEAK_TEST,
    Finding,
    Verdict,
    Weakness,
    checked_alone,
    judge,
    not_run,
    weak_beyond,
    with_limit,
)
from ..audit.measurement import Measurement
from ..audit.output_file import check_inside, parsed_json, write_atomically
from ..audit.power import trials_needed
from ..audit.supplied.given import check_alpha, check_whole
from ..audit.supplied.power import detectable_by_tests
from ..audit.wording import shortened
from ..checks.training_record import Plant, TrainingRecord
from ..checks.watched_run import Watched
from ..fl.layout import Layout
from .runner import Runner, check_stated, run_once, watch, why_not_planted

_FIRST, _LOOK = 4, 1.25
"""Runs per arm at the first look at the runs so far, and the growth of their number; a look takes a tenth of a second.
"""
_LIMIT, _POWER = 10**6, 0.9
_MOST_TIMES, _LIKELY = 4, 1.28
"""Runs that are planned so that an audit can end with OK, over those of its power, at most; standard deviations of the
counts of errors with which it still does, so that it does with probability 0.9.
"""
_SIMULATED, _MOST_SIMULATED = 50_000, 3 * 10**7
"""Simulated runs per arm from which the power is computed, and most of their releases."""
_PAIRS, _MOST_PAIRS, _BY_CHANCE = 8, 64, 1e-3
"""Pairs of runs with equal seeds in which a planted unit must have arrived once: at least, at most, and the probability
that it is in none of them by chance.
"""

_SAVED = 0.2
"""Share of the runs that giving up must save: fewer are made, because all runs give a larger bound."""
_EQUAL = 1e-9
"""Clip norms by which rounding alone lets equal projections differ."""
_SAME = (
    "the first {} runs of each arm, each with another seed, all gave the same numbers: the noise depends on the "
    "number of the round, or on a secret drawn once per process, and runs do not show which"
)


@dataclass(kw_only=True)
class KeptProjections:
    """The projections of finished runs on the planted unit's direction, ``(steps,)`` in clip norms. A key says whether
    the unit took part, and the number of the run; see ``TrainingRecord.projections``.

    Args:
        path: of the file, one line per run with its checksum; None keeps them in memory only. Lines that are cut off,
            changed or hold no run are skipped with a warning that names them.
        facts: what determines the runs; a file of other facts holds the runs of something else. ``steps``: of a run.

    Raises:
        ValueError: for a file of other facts, and for one that holds no runs.
    """

    path: Path | None
    facts: Mapping[str, Any]
    runs: dict[tuple[bool, int], FloatArray] = field(default_factory=dict)
    cut: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.path is None or not self.path.exists():
            return
        head, *lines = self.path.read_bytes().split(b"\n")
        try:
            known = parsed_json(head)
        except ValueError:
            raise ValueError(f"{self.path} holds no runs of an audit: name another checkpoint") from None
        now = json.loads(json.dumps(dict(self.facts)))
        if known != now:
            was = known if isinstance(known, dict) else {}
            differ = [name for name in now if was.get(name) != now[name]]
            words = ", ".join(f"{name} {shortened(was.get(name))}, now {shortened(now[name])}" for name in differ)
            if differ in (["first_run_sha256"], ["source_sha256"]):
                words = "the system has changed since"
            raise ValueError(
                f"{self.path} holds the runs of another audit ({words}), which must not be mixed with these: name "
                "another file, or remove this one"
            )
        self.cut = not lines or bool(lines[-1])
        skipped = []
        for place, line in enumerate(lines, start=2):
            content, _, digest = line.rstrip(b"\r").rpartition(b" ")
            if digest == self._digest(content) and (run := _run_in(content, self.facts.get("steps"))):
                self.runs.setdefault(run[0], run[1])
            elif line:
                skipped.append(str(place))
        if skipped:
            words = "these lines are cut off or changed or hold no run, so their runs are repeated"
            warnings.warn(f"{self.path}: {words}: {', '.join(skipped[:20])}", RuntimeWarning, stacklevel=3)

    def keep(self, member: bool, number: int, values: FloatArray) -> None:
        """Keep the projections ``values`` (steps,) of one finished run, and write them to the file at once.

        Raises OSError, with the file's name, where it cannot be written; the other runs stay in it.
        """
        self.runs[member, number] = values
        if self.path is None:
            return
        check_inside(self.path, self.path.parent)
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, json.dumps(dict(self.facts)).encode() + b"\n")
        content = json.dumps([member, number, values.tolist()]).encode()
        line, self.cut = b"\n" * self.cut + content + b" " + self._digest(content) + b"\n", True
        # In one call, so that no line of another process stands inside this one.
        with self.path.open("ab", buffering=0) as file:
            written = file.write(line)
        if written < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        self.cut = False

    def _digest(self, content: bytes) -> bytes:
        """The checksum of a line, of the facts too: the line of another system's file is none of this one's."""
        facts = json.dumps(dict(self.facts), sort_keys=True).encode()
        return hashlib.sha256(facts + b"\n" + content).hexdigest()[:16].encode()

    def arm(self, member: bool, count: int) -> FloatArray:
        """Return the projections of the first ``count`` runs of one arm, ``(count, steps)``."""
        return np.stack([self.runs[member, number] for number in range(count)])

    def missing(self, count: int) -> list[tuple[bool, int]]:
        """Return the runs that are not finished, among the first ``count`` runs of each arm; the arms alternate."""
        wanted = [(member, number) for number in range(count) for member in (True, False)]
        return [one for one in wanted if one not in self.runs]


def _run_in(content: bytes, steps: object) -> tuple[tuple[bool, int], FloatArray] | None:
    """The run of a line with a right checksum, which may hold anything."""
    with suppress(ValueError, TypeError, OverflowError):
        member, number, values = parsed_json(content)
        found = np.array(values, dtype=np.float64)
        right = found.ndim == 1 and steps in (None, len(found)) and np.isfinite(found).all()
        if right and type(member) is bool and type(number) is int:
            return (member, number), found
    return None


@dataclass(frozen=True, kw_only=True)
class ReplicaPlan:
    """A plan of an audit: how many runs it makes, and by which tests it judges them.

    Args:
        release: the claimed mechanism.
        tests: scores and thresholds, one per fault that is looked for.
        looks: runs per arm after which the claim is judged, ascending; the last is the number of runs per arm.
        alpha: error probability of all looks and tests together; one half of it is for bets.
        expected: simulated scores of each test with and without the unit, on which bets are based before the first run.
        noise_share: the share of the claimed noise against which the number of runs was planned.
        power: probability with which so many runs refute this share, at least.
        weak: why the test would be weak if nothing refutes the claim; empty where it would not.
        enough: runs per arm with which it would not be, at this ``alpha`` and at half of it, which a further verdict on
            the same runs has; None where no number up to a million is enough.
        accept_weak: whether the user accepts a weak test.
        decides: whether so many runs can refute the claim, if no test makes an error; else they cost no ``alpha``.
    """

    release: GaussianRelease
    tests: tuple[ReleaseTest, ...]
    looks: tuple[int, ...]
    alpha: float
    noise_share: float
    power: float = 0.9
    weak: str = ""
    enough: tuple[int | None, int | None] = (None, None)
    accept_weak: bool = False
    decides: bool = True
    expected: tuple[tuple[FloatArray, FloatArray], ...] = field(default=(), compare=False, repr=False)

    @property
    def weakness(self) -> Weakness:
        """Why the audit may have been too weak if it refutes nothing; its runs were planned to detect a system with
        ``noise_share`` of the claimed noise.
        """
        low = (
            f"weak test: if only {self.noise_share:g} of the claimed noise is added, the claim is refuted with "
            f"probability {self.power:g}, but a test needs {_POWER}"
        )
        enough = _enough(self.enough[1])
        return replace(WEAK_TEST, low_power="" if self.power >= _POWER else f"{low}{enough}", enough=enough)

    @property
    def runs(self) -> int:
        """The largest number of runs per arm."""
        return self.looks[-1]

    def line(self) -> str:
        """Return one line about the planned audit, to be printed before the runs are made."""
        line = (
            f"{self.runs} runs per arm refute the claim with probability {self.power:g} if only "
            f"{self.noise_share:g} of the claimed noise is added (fewer runs if an interim test decides; alpha "
            f"{self.alpha:g} in all)"
        )
        if not self.weak:
            return line
        ends = (
            "NOT REFUTED by a weak test, accepted (exit code 0)" if self.accept_weak else "UNDERPOWERED (exit code 11)"
        )
        return f"{line}; if they do not refute it, the verdict is {ends}: {self.weak}"


def _enough(runs: int | None) -> str:
    """How many runs per arm would be no weak test."""
    if runs is None:
        return f"; even {_LIMIT:,} runs per arm would not be enough"
    return f"; about {runs:,} counted runs per arm would be enough"


def _planned_runs(needed: int | None, enough: int | None, accept_weak: bool) -> int:
    count = needed or _LIMIT
    return enough if enough and not accept_weak and enough <= _MOST_TIMES * count else count


def plan_replicas(
    runner: Runner,
    *,
    plant: Plant | None = None,
    noise_share: float = 0.6,
    alpha: float = 0.05,
    seed: int = 0,
    runs: int | None = None,
    accept_weak: bool = False,
) -> ReplicaPlan:
    """Plan enough runs to refute, with probability 0.9, a system that adds only ``noise_share`` of the claimed noise.
    More runs are planned so that the test of a correct system is not weak, unless that takes more than four times as
    many.

    ``noise_share`` in (0, 1); ``runs``: per arm, >= 1, in place of as many as are needed; ``accept_weak``: whether a
    weak test will be accepted, for which no further runs are planned. The system runs once, to
    count its releases; where its steps do not follow one law, their noise is that of this run, and their sampling rates
    are those of its ledger. Raises ValueError for a system without noise or with a ledger of other steps, for one that
    is no ``Runner``, where no unit can be planted, and where more than a million runs would be needed.
    """
    _check_arguments(runner, noise_share, alpha, runs)
    unit = plant or Plant()
    claim, release = runner.claim, _release(runner, unit)
    faults = (BrokenRelease(noise=noise_share), BrokenRelease(row=unit.weight))
    rng = np.random.default_rng(seed)
    stated: dict[str, Any] = {"curve": claim.curve, "epsilon": claim.epsilon, "delta": claim.delta}
    share, levels = alpha / 2, (alpha / 2, alpha / 4)
    points = simulated_release_points(release, faults[0], rng=rng)
    planned = trials_needed(points, **stated, alpha=share / len(faults), limit=_LIMIT)
    # The same tests for every number of runs, so that what is said to be enough is.
    tests = tuple(
        design_test(release, one, n=planned.trials if planned else _LIMIT, rng=rng, **stated) for one in faults
    )
    # The rates at which a threshold was chosen look better than they are: those of fresh runs decide.
    simulated = max(RUNS, min(_SIMULATED, _MOST_SIMULATED // release.rounds))
    errors = simulated_errors(tests, release, faults[0], rng=rng, runs=simulated, cautious=1)
    correct = simulated_errors(tests, release, BrokenRelease(), rng=rng)

    def power(n: int, level: float = share) -> float:
        return chance_of_best(errors, n=n, alpha=level, **stated)

    def fewest_with_power(level: float) -> int | None:
        return fewest(lambda n: power(n, level) >= _POWER, _LIMIT)

    needed = [fewest_with_power(level) for level in levels]
    if runs is None and needed[0] is None:
        raise ValueError(
            f"more than {_LIMIT:,} runs per arm would be needed: use watch and play_back, which find small faults"
        )
    enough = [one and _not_weak(correct, claim, at, least=one) for one, at in zip(needed, levels, strict=True)]
    count = _planned_runs(needed[0], enough[0], accept_weak) if runs is None else runs
    measured = expected_measurement(correct, setting=Setting.claimed(claim), n=count, alpha=share, **stated)
    measured = replace(measured, detectable=detectable_by_tests(correct, claim, trials=count, alpha=share))
    decides = errors_refute([(0, 0)] * len(tests), runs=count, alpha=share, **stated)
    planned_for = ReplicaPlan(
        release=release,
        tests=tests,
        looks=_looks(count) if decides else (count,),
        decides=decides,
        # Of draws of their own, so that bets are the same for every number of runs: whoever stops an audit and plans
        # another number goes on with one test, whose error probability is spent once.
        expected=expected_scores(release, tests, rng=np.random.default_rng([seed, 1])),
        alpha=alpha,
        noise_share=noise_share,
        power=_POWER if runs is None else math.floor(100 * power(count)) / 100,
        enough=(enough[0], enough[1] if decides else enough[0]),
        accept_weak=accept_weak,
    )
    expected = judge(claim, measured, weakness=replace(planned_for.weakness, enough=_enough(enough[0])))
    return replace(planned_for, weak=expected.reason if expected.verdict is Verdict.UNDERPOWERED else "")


def _check_arguments(runner: Runner, noise_share: float, alpha: float, runs: int | None) -> None:
    """Raise ValueError where a system cannot be planned for."""
    check_alpha(alpha)
    if not 0 < noise_share < 1:
        raise ValueError(f"noise_share must be in (0, 1), got {noise_share}")
    if runs is not None:
        check_whole("runs", runs, least=1)
    check_stated(runner)
    if reason := why_not_planted(runner):
        raise ValueError(reason)


def _not_weak(errors: Sequence[tuple[float, float]], claim: Claim, alpha: float, *, least: int) -> int | None:
    """The fewest runs per arm, ``least`` or more, whose minimum detectable epsilon is small enough with probability
    0.9, by the error rates (FPR, FNR) of each test on a correct system.
    """

    def enough(n: int) -> bool:
        for sign in (-1, 1):
            moved = [[rate + sign * _LIKELY * math.sqrt(rate * (1 - rate) / n) for rate in rates] for rates in errors]
            rates = [(min(max(fpr, 0.0), 1.0), min(max(fnr, 0.0), 1.0)) for fpr, fnr in moved]
            found = detectable_by_tests(rates, claim, trials=n, alpha=alpha)
            if found is None or found > weak_beyond(claim.epsilon):
                return False
        return True

    found = fewest(lambda n: enough(n + least - 1), _LIMIT)
    return None if found is None else found + least - 1


def _looks(runs: int) -> tuple[int, ...]:
    looks = [min(_FIRST, runs)]
    while looks[-1] < runs:
        looks.append(min(runs, max(looks[-1] + 1, int(_LOOK * looks[-1]))))
    return tuple(looks)


@dataclass(frozen=True, kw_only=True)
class FirstRun:
    """The first run of a system, with the facts that determine the system's runs, and its duration in wall seconds."""

    facts: Mapping[str, object]
    seconds: float


def first_run(runner: Runner, *, plant: Plant | None = None, seed: int = 0) -> FirstRun:
    """Run a system once without the planted unit. Raises as ``audit_replicas``."""
    unit, begun = plant or Plant(), time.perf_counter()
    first = _run(runner, False, _seed_of(seed, False, 0), unit, number=0)
    seconds = time.perf_counter() - begun
    facts = {"claim": runner.claim.claim_id, "plant": asdict(unit), "seed": seed, "steps": len(first.releases)}
    if runner.replayable:
        # Runs of a system that was changed since then would be mixed with those of the new one.
        sent = [one.released.numpy().tobytes() for one in first.releases]
        facts |= {"first_run_sha256": hashlib.sha256(b"".join(sent)).hexdigest()}
    return FirstRun(facts=facts, seconds=seconds)


def audit_replicas(
    runner: Runner,
    *,
    plan: ReplicaPlan | None = None,
    plant: Plant | None = None,
    seed: int = 0,
    jobs: int = 1,
    checkpoint: Path | str | KeptProjections | None = None,
    progress: Callable[[int, int], None] | None = None,
    seen: Watched | None = None,
) -> Finding:
    """Judge the privacy claim of a foreign system by independent runs with and without a planted unit (canary).

    Args:
        runner: the system; each run has its own seed of all global generators.
        plan: as ``plan_replicas`` makes it; None plans for 0.6 of the claimed noise.
        seed: of all runs; one seed gives one finding.
        jobs: processes; the system must then be picklable by joblib.
        checkpoint: file of finished runs, or these; an audit of the same system with equal arguments goes on from it.
        progress: called with the numbers of finished and of all runs after each run.
        seen: what ``watch`` found; None watches one run first.

    A check that fails in the watched run refutes the claim, and no run is made. The finding is UNDERPOWERED where the
    unit arrived in no release or cannot be planted, when no run is made either, and where something moved without noise
    that no run explains. Exceptions of the system pass through, with a note that names the run; finished runs stay in
    the checkpoint. Raises ValueError for a checkpoint of another audit, and for runs that return other things than a
    ``TrainingRecord`` or other numbers of releases.
    """
    check_whole("jobs", jobs, least=1)
    check_whole("seed", seed, least=0)
    unit = plant or Plant()
    seen = seen or watch(runner, seed=seed)
    reason = why_not_planted(runner)
    if reason or seen.failed:
        found = checked_alone(runner.claim, [one.words for one in seen.failed], not_looked_at=reason)
        return with_limit(found, seen.results)
    planned = plan or plan_replicas(runner, plant=unit, seed=seed)
    kept = checkpoint if isinstance(checkpoint, KeptProjections) else None
    if kept is None:
        path = None if checkpoint is None else Path(checkpoint)  # type: ignore[arg-type]
        facts = {} if path is None else first_run(runner, plant=unit, seed=seed).facts
        kept = KeptProjections(path=path, facts=facts)
    missing_unit = _unseen(runner, planned.release, unit, seed) or seen.unexplained
    layouts: set[Layout] = set()

    def judged(look: int) -> Finding | None:
        for member, number, values, layout in _made(runner, unit, kept.missing(look), seed, jobs):
            layouts.add(layout)
            if len(layouts) > 1 or len(values) != planned.release.rounds:
                raise ValueError(
                    f"all runs must have equally many releases of one layout, got {len(values)} of {layout} in "
                    f"{_words(member, number)}, and {planned.release.rounds} in the first run"
                )
            kept.keep(member, number, values)
            if progress is not None:
                progress(len(kept.runs), 2 * planned.runs)
        return _judged(runner.claim, planned, kept, look, unit, missing_unit)

    found = next(one for look in planned.looks if (one := judged(look)) is not None)
    return with_limit(found, seen.results)


def _release(runner: Runner, plant: Plant) -> GaussianRelease:
    law, seen = runner.law, _run(runner, False, 0, plant, number=0)
    if law is not None and law.noise_std > 0:
        steps = int(runner.claim.parameters.get("steps", 0)) or len(seen.releases)
        if steps != len(seen.releases):
            raise ValueError(
                f"the claim is about {steps} steps, but a run has {len(seen.releases)} releases: watch the system first"
            )
        return GaussianRelease(sigma=law.noise_std / law.clip_norm, rate=law.rate, rounds=steps)
    sigmas = tuple(one.noise_multiplier for one in seen.releases)
    if not sigmas or min(sigmas) == 0:
        raise ValueError("replicas need stated noise in every step; watch and play_back do not")
    rates = tuple(rate for _, rate, steps in seen.ledger or () for _ in range(steps))
    if rates and len(rates) != len(sigmas):
        raise ValueError(
            f"replicas need the sampling rate of every step, but the ledger has {len(rates)} rates for "
            f"{len(sigmas)} releases"
        )
    # Where nothing is accounted, every unit takes part in every step.
    highest = max(rates, default=1.0)
    return GaussianRelease(sigma=min(sigmas), rate=highest, rounds=len(sigmas), sigmas=sigmas, rates=rates)


def _unseen(runner: Runner, release: GaussianRelease, plant: Plant, seed: int) -> str:
    """Why no run can show the unit; empty where it arrived in a release, where equal runs cannot be compared, and where
    a unit that arrives may be missing from these few runs by chance.
    """
    if not runner.replayable:
        return ""
    missing = float(np.prod((1 - np.asarray(release.rate_of_rounds)) * np.ones(release.rounds)))
    pairs = _PAIRS if missing == 0 else max(_PAIRS, math.ceil(math.log(_BY_CHANCE) / math.log(missing)))
    for number in range(min(pairs, _MOST_PAIRS)):
        drawn = _seed_of(seed, True, number)
        within, out = (_run(runner, member, drawn, plant, number=number).projections(plant) for member in (True, False))
        if np.abs(within - out).max(initial=0.0) > 1e-3:
            return ""
    if pairs > _MOST_PAIRS:
        return ""
    return f"the canary changed no release in {pairs} pairs of runs, so that no run could show a violation"


def _made(
    runner: Runner, plant: Plant, wanted: Sequence[tuple[bool, int]], seed: int, jobs: int
) -> Iterator[tuple[bool, int, FloatArray, Layout]]:
    if jobs == 1 or len(wanted) < 2:
        for member, number in wanted:
            yield _one(runner, plant, member, number, seed)
        return
    from joblib import Parallel, delayed  # Lazy: a run in one process does not need it.

    tasks = (delayed(_one)(runner, plant, member, number, seed) for member, number in wanted)
    yield from Parallel(n_jobs=jobs, return_as="generator")(tasks)


def _one(runner: Runner, plant: Plant, member: bool, number: int, seed: int) -> tuple[bool, int, FloatArray, Layout]:
    record = _run(runner, member, _seed_of(seed, member, number), plant, number=number)
    return member, number, record.projections(plant), record.layout


def _run(runner: Runner, member: bool, seed: int, plant: Plant, *, number: int) -> TrainingRecord:
    return run_once(runner, member, seed, plant=plant, where=_words(member, number))


def _words(member: bool, number: int) -> str:
    return f"run {number} {'with' if member else 'without'} the canary"


def _seed_of(seed: int, member: bool, number: int) -> int:
    return int(np.random.SeedSequence(seed, spawn_key=(int(member), number)).generate_state(1)[0])


def _judged(
    claim: Claim, plan: ReplicaPlan, kept: KeptProjections, look: int, plant: Plant, unseen: str
) -> Finding | None:
    """The finding by the first ``look`` runs of each arm; None where further runs are to be made."""
    setting = Setting.claimed(claim)
    sides = []
    for member in (True, False):
        values = kept.arm(member, look)
        sides.append(Projections(values=values, seen=np.ones(values.shape, dtype=bool), setting=setting))
    place = "all tensors" if plant.tensor is None else plant.tensor
    stated: dict[str, Any] = {
        "alpha": plan.alpha / 2,
        "delta": claim.delta,
        "curve": claim.curve,
        "epsilon": claim.epsilon,
        "witness": f"a canary of {plant.weight:g} clip norms in {place}, {look} of at most {plan.runs} runs per arm",
    }
    weakness = replace(plan.weakness, unseen=unseen)
    if (
        look > 1
        and all((np.ptp(one.values, axis=0) < _EQUAL).all() for one in sides)
        and (np.abs(sides[1].values) > _EQUAL).any()
    ):
        # What is equal in all runs may be a secret's, with which they are no independent trials.
        return not_run(claim, _SAME.format(look))
    measured = audit_release_tests(sides[0], sides[1], plan.release, plan.tests, **stated)
    errors = counted_errors(sides[0], sides[1], plan.release, plan.tests)
    known = detectable_by_tests(errors, claim, trials=plan.runs, alpha=stated["alpha"])
    measured = replace(measured, detectable=known)
    if look == plan.runs:
        return judge(claim, _of_both(measured, plan), weakness=weakness)
    levels = {name: value for name, value in stated.items() if name != "witness"}
    # Where the unit arrived in no release, all runs are made, and the finding says so.
    early = not unseen and look <= (1 - _SAVED) * plan.runs
    given_up = early and not could_refute(sides[0], sides[1], plan.release, plan.tests, runs=plan.runs, **levels)
    bets = audit_by_bets(
        sides[0], sides[1], plan.release, plan.tests, expected=plan.expected, always=given_up, **stated
    )
    if bets is None:
        return None
    words = "; stopped early, because no result of the remaining runs could refute the claim" if given_up else ""
    bets = replace(bets, witness=f"{bets.witness}{words}", detectable=measured.detectable)
    found = judge(claim, _of_both(bets, plan), weakness=weakness)
    return found if given_up or found.verdict is Verdict.REFUTED else None


def _of_both(measured: Measurement, plan: ReplicaPlan) -> Measurement:
    """The measurement with the error probability of bets and counts together: each had one half."""
    return replace(measured, alpha=plan.alpha, comparisons=2 * measured.comparisons)
