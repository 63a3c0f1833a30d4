"""Audits by independent runs: the planner's figure, verdicts, early ends, resuming, and wrong use."""

from dataclasses import replace

import pytest
from fedassay.adapters import replicas
from fedassay.adapters.replicas import KeptProjections, audit_replicas, plan_replicas
from fedassay.checks.training_record import Plant
from fedassay.defenses.accounting.stated_laws import claim_from_noise
from foreign_runner import STEPS, GaussianRunner, ScheduledRunner


@pytest.fixture(scope="module")
def plan():
    return plan_replicas(GaussianRunner())


def test_the_planner_names_the_runs(plan):
    assert plan.release.rounds == STEPS
    assert 60 < plan.runs < 400
    assert plan.looks[-1] == plan.runs
    assert plan.line().startswith(f"{plan.runs} runs per arm refute 0.5 of the claimed noise")


def test_half_of_the_noise_is_refuted_and_the_correct_system_is_not(plan):
    assert audit_replicas(GaussianRunner(share=0.5), plan=plan).verdict.value == "REFUTED"
    correct = audit_replicas(GaussianRunner(), plan=plan)
    assert correct.verdict.value == "NOT_REFUTED"
    assert correct.measurement.alpha == 0.05
    assert correct.measurement.n0 == plan.runs


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


def test_a_missing_clip_ends_the_audit_at_its_first_look(plan):
    found = audit_replicas(GaussianRunner(clip=10.0), plan=plan)
    assert (found.verdict.value, found.measurement.n1) == ("REFUTED", plan.looks[0])
    assert "a record of 10 clip norms in all tensors" in found.measurement.witness


def test_a_unit_that_never_arrives_leaves_the_claim_unjudged(plan):
    found = audit_replicas(GaussianRunner(clip=0.0), plan=plan)
    assert found.verdict.value == "UNDERPOWERED"
    assert "arrived in no release of 8 runs" in found.reason


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
    calls.clear()
    again = audit_replicas(
        GaussianRunner(), plan=plan, checkpoint=path, progress=lambda done, total: calls.append(done)
    )
    assert calls[0] == 21
    assert again == whole
    with pytest.raises(ValueError, match="holds the runs of another audit"):
        audit_replicas(GaussianRunner(share=0.5), plan=plan, checkpoint=path)
    with pytest.raises(ValueError, match="holds the runs of another audit"):
        audit_replicas(GaussianRunner(), plan=plan, plant=Plant(weight=3.0), checkpoint=path)


def test_a_checkpoint_that_is_another_file_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello", encoding="utf-8")
    with pytest.raises(ValueError, match="holds no runs of an audit"):
        KeptProjections(path=path, facts={})


def test_an_exception_names_the_run(plan):
    with pytest.raises(RuntimeError, match="out of memory") as raised:
        audit_replicas(GaussianRunner(fails=0, replayable=False), plan=plan)
    assert "the planted unit" in raised.value.__notes__[0]


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


@pytest.mark.simulations
def test_a_schedule_of_noise_and_rates_is_judged():
    # At most 5 % of correct systems are refuted, and at least 90 % of those with half of the noise; seeds are fixed.
    plan = plan_replicas(ScheduledRunner())
    assert (plan.release.sigmas, plan.release.rates) == (ScheduledRunner.noises, ScheduledRunner.rates)
    assert audit_replicas(ScheduledRunner(share=0.5), plan=plan).verdict.value == "REFUTED"
    assert audit_replicas(ScheduledRunner(clip=10.0), plan=plan).verdict.value == "REFUTED"
    assert audit_replicas(ScheduledRunner(), plan=plan).verdict.value == "NOT_REFUTED"


def test_a_schedule_whose_ledger_has_other_steps_is_refused():
    with pytest.raises(ValueError, match=r"sampling rate of every step, and the ledger has 4 for 5 releases"):
        plan_replicas(ScheduledRunner(accounted=4))


def test_a_system_without_noise_is_refused():
    class Bare(GaussianRunner):
        law = None

        def run(self, member=False, seed=0, **options):
            recording = super().run(member, seed, **options)
            return replace(recording, releases=tuple(replace(one, noise_multiplier=0.0) for one in recording.releases))

    with pytest.raises(ValueError, match="replicas need a stated noise in every step"):
        plan_replicas(Bare())


def test_a_claim_about_fewer_steps_than_a_run_makes_is_refused():
    class Fewer(GaussianRunner):
        @property
        def claim(self):
            return claim_from_noise(1.0, delta=1e-5, sampling_rate=0.3, steps=STEPS - 1)

    with pytest.raises(ValueError, match=f"about {STEPS - 1} steps, and a run has {STEPS} releases"):
        plan_replicas(Fewer())


def test_a_unit_that_is_rarely_drawn_is_not_taken_for_one_that_never_arrives(plan):
    rare = replace(plan.release, rate=1e-4)
    assert replicas._unseen(GaussianRunner(clip=0.0), rare, Plant(), 0) == ""
    assert "arrived in no release of 64 runs" in replicas._unseen(
        GaussianRunner(clip=0.0), replace(plan.release, rate=0.0215), Plant(), 0
    )
