"""Audits by independent runs: the planner's figure, verdicts, early ends, resuming, and wrong use.

All checks of a system at once, with and without play-back, and systems that are no runners.

One run with many planted units: scores, a gross fault, a correct system, and wrong use.
"""

from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path

import numpy as np
import pytest
import torch
from fedassay.adapters import replicas
from fedassay.adapters.many_units import ManyUnits, audit_many_units
from fedassay.adapters.play_back import PlayBack, Step
from fedassay.adapters.replicas import KeptProjections, audit_replicas, plan_replicas
from fedassay.adapters.runner import watch
from fedassay.adapters.target import is_runner
from fedassay.audit.estimators.release_tests import BrokenRelease, draw_projections
from fedassay.audit.finding import accept_weak
from fedassay.checks.training_record import Plant, RecordError, Release, TrainingRecord
from fedassay.defenses.accounting.stated_laws import claim_from_noise
from fedassay.fl.laws import GaussianLaw
from fedassay.fl.layout import Layout
from foreign_runner import LAYOUT, STEPS, GaussianRunner, ScheduledRunner


@pytest.fixture(scope="module")
def plan():
    return plan_replicas(GaussianRunner())


def test_the_planner_names_the_runs(plan):
    assert plan.release.rounds == STEPS
    assert 60 < plan.runs < 400
    assert plan.looks[-1] == plan.runs
    assert plan.line().startswith(f"{plan.runs} runs per arm refute the claim with probability 0.9")


def test_half_of_the_noise_is_refuted_and_the_correct_system_is_not(plan):
    assert audit_replicas(GaussianRunner(share=0.5), plan=plan).verdict.value == "REFUTED"
    correct = audit_replicas(GaussianRunner(), plan=plan)
    assert correct.verdict.value == "NOT_REFUTED"
    assert correct.measurement.alpha == 0.05
    # Given up where no result of the others could refute it.
    assert plan.runs // 4 < correct.measurement.n0 <= plan.runs
    assert correct.measurement.n0 == plan.runs or "stopped" in correct.measurement.witness
    # What is left at the end is made, because all runs together give a bound.
    assert not 0.8 * plan.runs < correct.measurement.n0 < plan.runs


def a_system(sigma, rate, steps):
    """A runner whose steps are ``steps`` Poisson releases, as far as a plan looks at it."""

    @dataclass(frozen=True)
    class Sampled(GaussianRunner):
        noises = (sigma,) * steps
        rates = (rate,) * steps

        @property
        def claim(self):
            return claim_from_noise(sigma, delta=1e-5, sampling_rate=rate, steps=steps)

        @property
        def law(self):
            return GaussianLaw(clip_norm=1.0, scale=1.0, noise_std=sigma, rate=rate)

    return Sampled()


def test_runs_that_would_hardly_refute_the_planned_fault_are_no_ok_unless_a_weak_test_is_accepted():
    # A Gaussian mechanism of twice the claimed epsilon would be refuted, and 0.6 of the noise with probability .27.
    system = GaussianRunner()
    few = plan_replicas(system, runs=50)
    assert few.power < 0.5
    assert "weak test" in few.line()
    found = audit_replicas(system, plan=few)
    assert (found.verdict.value, found.weak) == ("UNDERPOWERED", True)
    assert accept_weak(found).verdict.value == "NOT_REFUTED"
    sampled = plan_replicas(a_system(1.0, 0.1, 20), runs=150)
    assert "if only 0.6 of the claimed noise is added" in sampled.weak
    assert plan_replicas(a_system(1.0, 0.1, 20)).weak == ""


SAMPLED = [(1.0, 0.1, 10), (4.0, 1.0, 10), (1.1, 0.01, 100)]


@pytest.mark.long
@pytest.mark.simulations
@pytest.mark.parametrize(("sigma", "rate", "steps"), SAMPLED)
def test_the_power_of_a_plan_is_true_where_units_are_sampled(sigma, rate, steps):
    # Planned from the rates at which its threshold looked best, the power was .74 to .85 in place of .9.
    system = a_system(sigma, rate, steps)
    plan, rng, refuted, audits = plan_replicas(system), np.random.default_rng(7), 0, 400
    for _ in range(audits):
        runs = {
            (bool(arm), number): values
            for arm in (0, 1)
            for number, values in enumerate(
                draw_projections(plan.release, BrokenRelease(noise=0.6), arm=arm, n=plan.runs, rng=rng)
            )
        }
        kept = KeptProjections(path=None, facts={}, runs=runs)
        refuted += any(
            found is not None and found.verdict.value == "REFUTED"
            for look in plan.looks[::4] + plan.looks[-1:]
            for found in [replicas._judged(system.claim, plan, kept, look, Plant(), "")]
        )
    # 360 expected; three standard deviations fewer are 342. No more than half again as many runs as needed.
    assert 342 <= refuted < audits * 0.995


def test_a_plan_says_before_the_runs_that_they_would_be_a_weak_test():
    plan = plan_replicas(a_system(1.1, 0.01, 100))
    assert "if they do not refute it, the verdict is UNDERPOWERED (exit code 11): weak test: the minimum" in plan.line()
    assert plan_replicas(a_system(1.0, 0.1, 10)).weak == ""


def test_the_default_number_of_runs_can_end_with_ok_where_four_times_the_power_s_do():
    system = a_system(1.355, 0.1, 50)
    powered, planned = (plan_replicas(system, alpha=0.025, accept_weak=weak) for weak in (True, False))
    assert powered.weak
    assert "NOT REFUTED by a weak test, accepted (exit code 0): weak test" in powered.line()
    assert powered.runs < planned.runs == planned.enough[0] == powered.enough[0] < planned.enough[1]
    assert planned.weak == ""
    assert plan_replicas(system, alpha=0.025, runs=planned.runs).weak == ""
    fewer = plan_replicas(system, alpha=0.025, runs=3 * planned.runs // 4)
    # Of this attack, at the alpha of a further verdict.
    assert f"; about {planned.enough[1]:,} counted runs per arm would be enough" in fewer.weakness.enough
    assert f"; about {planned.enough[0]:,} counted runs per arm would be enough" in fewer.weak
    later = plan_replicas(system, alpha=0.0125, runs=planned.enough[1])
    assert later.weak == ""


@pytest.mark.long
@pytest.mark.simulations
def test_so_many_runs_of_a_correct_system_end_with_ok_in_nine_of_ten_audits():
    system = a_system(1.355, 0.1, 50)
    plan, rng, verdicts = plan_replicas(system, alpha=0.025), np.random.default_rng(3), []
    for _ in range(100):
        arms = [draw_projections(plan.release, BrokenRelease(), arm=arm, n=plan.runs, rng=rng) for arm in (0, 1)]
        runs = {(bool(arm), number): one for arm in (0, 1) for number, one in enumerate(arms[arm])}
        kept = KeptProjections(path=None, facts={}, runs=runs)
        verdicts.append(replicas._judged(system.claim, plan, kept, plan.runs, Plant(), "").verdict.value)
    # 90 expected; three standard deviations fewer are 81.
    assert verdicts.count("NOT_REFUTED") >= 81
    assert verdicts.count("REFUTED") <= 7


def test_bets_and_thresholds_are_those_of_any_number_of_runs(plan):
    # So that an audit that was stopped and planned anew goes on with one test, and is no second look.
    other = plan_replicas(GaussianRunner(), runs=2 * plan.runs)
    assert other.tests == plan.tests
    assert all(np.array_equal(*pair) for pair in zip(np.array(plan.expected), np.array(other.expected), strict=True))


def test_a_stated_number_of_runs_has_its_own_power(plan):
    fewer = plan_replicas(GaussianRunner(), runs=plan.runs // 2)
    assert (fewer.runs, fewer.looks[-1]) == (plan.runs // 2, plan.runs // 2)
    assert 0.2 < fewer.power < 0.7
    assert plan_replicas(GaussianRunner(), runs=2 * plan.runs).power >= 0.99 > 0.9 == plan.power
    with pytest.raises(ValueError, match="runs must be >= 1, got 0"):
        plan_replicas(GaussianRunner(), runs=0)


@pytest.mark.long
def test_the_power_is_what_the_plan_says_and_correct_systems_are_refuted_no_oftener_than_alpha(plan):
    refuted = {
        share: sum(
            audit_replicas(GaussianRunner(share), plan=plan, seed=n).verdict.value == "REFUTED" for n in range(100)
        )
        for share in (0.5, 1.0)
    }
    # 90 expected, standard deviation 3.
    assert refuted[0.5] >= 81
    assert refuted[1.0] <= 5


def test_a_missing_clip_ends_the_audit_after_a_few_runs(plan):
    found = audit_replicas(GaussianRunner(clip=10.0), plan=plan)
    assert (found.verdict.value, found.measurement.alpha) == ("REFUTED", 0.05)
    assert found.measurement.n1 <= plan.runs // 8
    assert "a canary of 10 clip norms in all tensors" in found.measurement.witness


def test_a_unit_that_never_arrives_leaves_the_claim_unjudged(plan):
    found = audit_replicas(GaussianRunner(clip=0.0), plan=plan)
    assert found.verdict.value == "UNDERPOWERED"
    assert "changed no release in 8 pairs of runs" in found.reason


def test_an_interrupted_audit_goes_on_where_it_ended(plan, tmp_path):
    path, whole = tmp_path / "runs.jsonl", audit_replicas(GaussianRunner(), plan=plan)
    calls = []

    def stop(done, total):
        calls.append((done, total))
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit_replicas(GaussianRunner(), plan=plan, checkpoint=path, progress=stop)
    assert calls[-1] == (20, 2 * plan.runs)
    with path.open("a", encoding="utf-8") as file:
        file.write("[true, 7, [0.")  # A process that was killed while it wrote.
    for first in (21, None):
        calls.clear()
        with pytest.warns(RuntimeWarning, match=r"runs\.jsonl: these lines are cut off or changed .*: 22$"):
            again = audit_replicas(
                GaussianRunner(), plan=plan, checkpoint=path, progress=lambda done, total: calls.append(done)
            )
        assert next(iter(calls), None) == first  # Nothing that follows the half line is made again.
        assert again == whole
    with pytest.raises(ValueError, match="holds the runs of another audit"):
        audit_replicas(GaussianRunner(share=0.5), plan=plan, checkpoint=path)
    with pytest.raises(ValueError, match="holds the runs of another audit"):
        audit_replicas(GaussianRunner(), plan=plan, plant=Plant(weight=3.0), checkpoint=path)


@pytest.mark.parametrize("content", [b"hello", b"", b"\xff\n", b"[" * 10**5])
def test_a_checkpoint_that_is_another_file_is_refused(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"notes\.txt holds no runs of an audit"):
        KeptProjections(path=path, facts={})


def test_no_change_of_a_byte_gives_a_run_other_values(tmp_path, monkeypatch):
    path, values = tmp_path / "runs.jsonl", np.array([0.25, -1.5e-9])
    kept = KeptProjections(path=path, facts={"seed": 0})
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", None)  # The file is read once, and not for each run.
        for number in range(3):
            kept.keep(True, number, values + number)
    content = path.read_bytes()
    for at in range(content.index(b"\n") + 1, len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.warns(RuntimeWarning, match="lines are cut off or changed"):
            found = KeptProjections(path=path, facts={"seed": 0}).runs
        assert len(found) >= 1
        assert all(np.array_equal(one, values + number) for (_, number), one in found.items())


def test_lines_with_a_right_checksum_that_hold_no_run_are_skipped_and_named(tmp_path):
    path, facts = tmp_path / "runs.jsonl", {"steps": 2}
    kept = KeptProjections(path=path, facts=facts)
    kept.keep(True, 0, np.zeros(2))
    odd = (
        '[];7;null;[true, 1];[true, 1, ["a", 2]];[1, 1, [0, 0]];[true, 1, [0]];[true, 1, [1%s, 0]];[true, 1, [null, 0]]'
        % ("0" * 400)
    )
    with path.open("ab") as file:
        file.writelines(b"%s %s\n" % (line.encode(), kept._digest(line.encode())) for line in odd.split(";"))
    with pytest.warns(RuntimeWarning, match=r"runs\.jsonl: these lines .*: 3, 4, 5, 6, 7, 8, 9, 10, 11$"):
        assert set(KeptProjections(path=path, facts=facts).runs) == {(True, 0)}


def test_lines_of_another_system_under_this_ones_facts_are_no_runs_of_it(tmp_path):
    for seed in (0, 1):
        KeptProjections(path=tmp_path / f"{seed}.jsonl", facts={"seed": seed}).keep(True, 0, np.full(2, float(seed)))
    head, lines = ((tmp_path / f"{seed}.jsonl").read_bytes().split(b"\n", 1)[seed] for seed in (0, 1))
    (tmp_path / "mixed.jsonl").write_bytes(head + b"\n" + lines)
    with pytest.warns(RuntimeWarning, match="lines are cut off or changed"):
        assert not KeptProjections(path=tmp_path / "mixed.jsonl", facts={"seed": 0}).runs


def test_no_run_is_kept_through_a_link_out_of_the_folder(tmp_path):
    (tmp_path / "kept").mkdir()
    (path := tmp_path / "kept" / "runs.jsonl").symlink_to(tmp_path / "outside.jsonl")
    with pytest.raises(ValueError, match="leads out of the folder"):
        KeptProjections(path=path, facts={}).keep(True, 0, np.zeros(2))
    assert not (tmp_path / "outside.jsonl").exists()


def test_half_a_line_on_a_full_disk_is_an_error_and_loses_one_run(tmp_path, monkeypatch):
    path = tmp_path / "runs.jsonl"
    kept = KeptProjections(path=path, facts={})
    kept.keep(True, 0, np.zeros(2))

    class Full(FileIO):
        def write(self, content):
            return super().write(content[:5])

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", lambda place, mode, buffering: Full(place, mode))
        with pytest.raises(OSError, match=r"runs\.jsonl"):
            kept.keep(True, 1, np.zeros(2))
    kept.keep(True, 2, np.zeros(2))
    # Line ends of an editor are no damage.
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    with pytest.warns(RuntimeWarning, match="repeated: 3"):
        assert set(KeptProjections(path=path, facts={}).runs) == {(True, 0), (True, 2)}


def test_an_exception_names_the_run(plan):
    with pytest.raises(RuntimeError, match="out of memory") as raised:
        audit_replicas(GaussianRunner(fails=3, replayable=False), plan=plan)
    assert "without the canary" in raised.value.__notes__[0]


@pytest.mark.processes
def test_processes_give_the_same_finding(plan):
    assert audit_replicas(GaussianRunner(), plan=plan, jobs=2) == audit_replicas(GaussianRunner(), plan=plan)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"noise_share": 1.0}, "noise_share must be in"), ({"noise_share": 0.99999}, "more than 1,000,000 runs per arm")],
)
def test_plans_that_cannot_be_made_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        plan_replicas(GaussianRunner(), **options)


@pytest.mark.long
@pytest.mark.simulations
def test_a_schedule_of_noise_and_rates_is_judged():
    # At most 5 % of correct systems are refuted, and at least 90 % of those with half of the noise; seeds are fixed.
    plan = plan_replicas(ScheduledRunner())
    assert (plan.release.sigmas, plan.release.rates) == (ScheduledRunner.noises, ScheduledRunner.rates)
    assert audit_replicas(ScheduledRunner(share=0.5), plan=plan).verdict.value == "REFUTED"
    assert audit_replicas(ScheduledRunner(clip=10.0), plan=plan).verdict.value == "REFUTED"
    assert audit_replicas(ScheduledRunner(), plan=plan).verdict.value == "NOT_REFUTED"


def test_a_schedule_whose_ledger_has_other_steps_is_refused():
    with pytest.raises(ValueError, match=r"sampling rate of every step, but the ledger has 4 rates for 5 releases"):
        plan_replicas(ScheduledRunner(accounted=4))


def test_a_system_without_noise_is_refused():
    class Bare(GaussianRunner):
        law = None

        def run(self, member=False, seed=0, **options):
            recording = super().run(member, seed, **options)
            return replace(recording, releases=tuple(replace(one, noise_multiplier=0.0) for one in recording.releases))

    with pytest.raises(ValueError, match="replicas need stated noise in every step"):
        plan_replicas(Bare())


def test_a_claim_about_fewer_steps_than_a_run_makes_is_refused():
    class Fewer(GaussianRunner):
        @property
        def claim(self):
            return claim_from_noise(1.0, delta=1e-5, sampling_rate=0.3, steps=STEPS - 1)

    with pytest.raises(ValueError, match=f"about {STEPS - 1} steps, but a run has {STEPS} releases"):
        plan_replicas(Fewer())


def test_a_unit_that_is_rarely_drawn_is_not_taken_for_one_that_never_arrives(plan):
    rare = replace(plan.release, rate=1e-4)
    assert replicas._unseen(GaussianRunner(clip=0.0), rare, Plant(), 0) == ""
    assert "changed no release in 64 pairs of runs" in replicas._unseen(
        GaussianRunner(clip=0.0), replace(plan.release, rate=0.0215), Plant(), 0
    )


def test_a_system_without_play_back_is_watched():
    assert watch(GaussianRunner()).failed == ()
    assert [one.name for one in watch(GaussianRunner(share=0.1)).failed] == ["noise scale"]
    assert is_runner(GaussianRunner())
    assert not is_runner(GaussianRunner)


@dataclass(frozen=True)
class Played(GaussianRunner):
    """Its step sums rows without a clip; ``takes_rows``: or takes none."""

    takes_rows: bool = True

    def play_back(self, seed):
        if not self.takes_rows:
            raise ValueError("none can be played back")
        step = Step(call=lambda rows, seed: rows.sum(0), layout=LAYOUT, clip_norm=1.0, noise_multiplier=1.0)
        return PlayBack(step, seed)


@pytest.mark.parametrize(("takes_rows", "passed"), [(True, False), (False, None)])
def test_a_system_with_play_back_is_also_played(takes_rows, passed):
    last = watch(Played(takes_rows=takes_rows)).results[-1 if not takes_rows else -2]
    assert last.passed is passed


def test_a_step_that_lets_nan_through_limits_the_finding_of_replicas_and_refutes_nothing(plan):
    class Clipped(GaussianRunner):
        def play_back(self, seed):
            def call(rows, seed):
                noise = torch.randn(6, generator=torch.Generator().manual_seed(seed))
                return (rows * (1 / rows.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0) + noise

            return PlayBack(Step(call=call, layout=LAYOUT, clip_norm=1.0, noise_multiplier=1.0), seed)

    limit = "the claim holds for records that cannot cause such values"
    assert limit in watch(Clipped()).limit
    found = audit_replicas(Clipped(), plan=plan)
    assert (found.verdict.value, limit in found.line(), limit in found.limit) == ("NOT_REFUTED", True, True)
    assert limit not in audit_replicas(GaussianRunner(), plan=plan).line()


class ReturnsNothing(GaussianRunner):
    def run(self, member=False, seed=0, *, plant=None):
        super().run(member, seed, plant=plant)


class TakesASeedAlone(GaussianRunner):
    def run(self, seed):
        return super().run(False, seed)


@pytest.mark.parametrize(
    ("system", "words"),
    [
        (ReturnsNothing(), "run of ReturnsNothing must return a TrainingRecord, got NoneType in"),
        (TakesASeedAlone(), r"run of TakesASeedAlone must take \(member, seed, \*, plant=None\), .*is \(seed\)"),
    ],
)
@pytest.mark.parametrize("use", [watch, plan_replicas, audit_replicas])
def test_a_method_run_of_another_kind_is_refused_with_what_is_wanted(system, words, use):
    with pytest.raises(ValueError, match=words):
        use(system)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("claim", "epsilon 1", "must be a Claim, got 'epsilon 1'"), ("law", 1.0, "must be a GaussianLaw, .*got 1.0")],
)
@pytest.mark.parametrize("use", [watch, plan_replicas])
def test_a_claim_or_law_of_another_kind_is_refused(name, value, words, use):
    system = type("Stated", (GaussianRunner,), {name: value})()
    with pytest.raises(ValueError, match=f"{name} of Stated {words}"):
        use(system)


def another_layout(record):
    layout = Layout(names=("other",), shapes=((6,),))
    return replace(record, layout=layout)


def two_releases_less(record):
    return replace(record, releases=record.releases[:3])


@pytest.mark.parametrize("change", [another_layout, two_releases_less])
def test_runs_of_other_shapes_are_refused_with_the_run(change):
    class Other(GaussianRunner):
        def run(self, member=False, seed=0, *, plant=None):
            found = super().run(member, seed, plant=plant)
            return found if member else change(found)

    with pytest.raises(ValueError, match=r"of one layout, got [35] of .* in run 0 without the canary, and 5 in"):
        audit_replicas(Other(replayable=False), plan=plan_replicas(GaussianRunner()))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"released": np.zeros(6)}, r"released must be a tensor \(d,\), got ndarray \(6,\)"),
        ({"released": torch.zeros(1, 6)}, r"released must be a tensor \(d,\), got Tensor \(1, 6\)"),
        ({"rest": torch.zeros(5)}, r"rest must have the shape of released, \(6,\), got \(5,\)"),
        ({"clip_norm": "1"}, "clip_norm must be a number > 0, got '1'"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must be a number >= 0, got -1.0"),
        ({"ids": torch.arange(3)}, r"ids must be a tuple of whole numbers or None, got Tensor \(3,\)"),
        ({"ids": tuple(torch.arange(3))}, r"ids must be a tuple of whole numbers or None, got \(tensor\(0\)"),
        ({"rows": "3"}, "rows must be a whole number or None, got '3'"),
        ({"longest": "1"}, "longest must be a number or None, got '1'"),
        ({"layout": ((6,),)}, r"layout must be a Layout, got \(\(6,\),\)"),
        (
            {"layout": Layout(names=("weight",), shapes=((5,),))},
            r"must have shape \(5,\), as the layout has, got \(6,\)",
        ),
        ({"releases": [torch.zeros(6)]}, r"releases must be a tuple of Release, got \[tensor"),
        ({"ledger": (1.0, 0.3, 5)}, r"ledger must be a tuple \(noise multiplier, .* or None, got \(1.0, 0.3, 5\)"),
        ({"ledger": ((1.0, 3.0, 5),)}, "ledger must be a tuple"),
        ({"ledger": ((1.0, 0.3, 5.0),)}, "ledger must be a tuple"),
        ({"population": 2.5}, "population must be a whole number or None, got 2.5"),
        ({"ids": (0, 7), "population": 7}, "ids of step 0 must be below population = 7, got 7"),
        ({"moved": ("weight",)}, "moved must be a tuple of Movement or None"),
    ],
)
@pytest.mark.parametrize("use", [watch, plan_replicas])
def test_records_with_fields_of_another_kind_are_refused_without_the_words_of_a_crash(changes, words, use):
    class Wrong(GaussianRunner):
        def run(self, member=False, seed=0, *, plant=None):
            found = super().run(member, seed, plant=plant)
            inner = {name: value for name, value in changes.items() if name in Release.__dataclass_fields__}
            outer = {name: value for name, value in changes.items() if name not in inner}
            releases = tuple(replace(one, **inner) for one in found.releases)
            return replace(found, **{"releases": releases} | outer)

    with pytest.raises(RecordError, match=words) as raised:
        use(Wrong())
    assert not getattr(raised.value, "__notes__", [])


WIDE_LAYOUT = Layout(names=("weight",), shapes=((1500,),))
WIDE_STEPS = 4


class OneRun:
    """Gaussian releases of all records; ``clip`` is the length at which a row is really clipped."""

    def __init__(self, *, clip=1.0, share=1.0):
        self.clip, self.share = clip, share
        self.claim = claim_from_noise(4.0, delta=1e-5, steps=WIDE_STEPS)
        self.law = GaussianLaw(clip_norm=1.0, scale=1.0, noise_std=4.0)

    def run_many_units(self, many, seed=0):
        rng = np.random.default_rng(seed)
        rows = torch.stack(list(many.vectors(WIDE_LAYOUT)))
        lengths = rows.norm(dim=1, keepdim=True).clamp_min(1e-9)
        total, rest = (rows * (self.clip / lengths).clamp(max=1)).sum(0), torch.zeros(1500)
        releases = []
        for step in range(WIDE_STEPS):
            noise = 4.0 * self.share * torch.from_numpy(rng.standard_normal(1500))
            releases.append(Release(step=step, released=total + noise, rest=rest, clip_norm=1.0, noise_multiplier=4.0))
        return TrainingRecord(layout=WIDE_LAYOUT, releases=tuple(releases))


def test_coins_are_fair_and_coordinates_differ():
    many = ManyUnits(units=1000)
    assert 440 < many.coins.sum() < 560
    assert len(set(many.coordinates(WIDE_LAYOUT))) == 1000
    taken = [float(vector.norm()) for vector in many.vectors(WIDE_LAYOUT)]
    assert taken == [10.0 * coin for coin in many.coins]


@pytest.mark.parametrize(("broken", "verdict"), [({}, "UNDERPOWERED"), ({"clip": 10.0}, "REFUTED")])
def test_a_missing_clip_is_refuted_and_the_correct_system_is_not(broken, verdict):
    assert audit_many_units(OneRun(**broken), ManyUnits(units=1000)).verdict.value == verdict


@pytest.mark.long
def test_correct_systems_are_refuted_no_oftener_than_alpha():
    found = [audit_many_units(OneRun(), ManyUnits(units=400, seed=n), seed=n).verdict.value for n in range(100)]
    assert found.count("REFUTED") <= 11  # 5 expected at most; more than 11 have probability .004.


def test_wrong_use_is_refused():
    with pytest.raises(ValueError, match="units must be at most the number of coordinates, 1500, got 2000"):
        ManyUnits(units=2000).coordinates(WIDE_LAYOUT)
    with pytest.raises(ValueError, match="weight"):
        ManyUnits(units=3, weight=0.0)
    runner = OneRun()
    runner.law = None
    with pytest.raises(ValueError, match="a test with many canaries needs one noise multiplier"):
        audit_many_units(runner, ManyUnits(units=3))
    run = OneRun().run_many_units(ManyUnits(units=3))
    unknown = replace(run, releases=(replace(run.releases[0], rest=None),))
    with pytest.raises(ValueError, match="in step 0 the sum without the canaries is unknown"):
        ManyUnits(units=3).scores(unknown, OneRun().law)


@pytest.mark.parametrize(("runs", "same"), [(1, False), (2, True)])
def test_one_run_shows_nothing_about_noise_of_other_seeds(runs, same):
    class OneNoise(GaussianRunner):
        def run(self, member=False, seed=0, *, plant=None):
            return super().run(False, 0, plant=plant)

    few = plan_replicas(GaussianRunner(), runs=runs)
    assert not few.decides
    found = audit_replicas(OneNoise(), plan=few, seen=watch(GaussianRunner()))
    assert found.verdict.value != "REFUTED"
    assert ("all gave the same numbers" in found.reason) == same
