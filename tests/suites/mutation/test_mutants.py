"""The suite of mutants: what it finds, runs, writes and prints."""

import dataclasses
from collections import Counter

import fedassay
import pytest
from fedassay.defenses.controls.clipping import ControlNoClip
from fedassay.defenses.controls.fault import correct_version
from fedassay.defenses.controls.transfer import ControlVotesNoiseOnce
from fedassay.defenses.controls.vertical import ControlBitsInFull
from fedassay.defenses.sample_level.dp_sgd import DPSGD
from fedassay.suites.config.part_listing import correct_cases, faults, mutant_summaries, summaries
from fedassay.suites.config.resolve import resolve
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.config.tables.suite import MutantsSpec
from fedassay.suites.mutation import vertical_mutant, vote_mutant
from fedassay.suites.mutation.mutants import chosen_mutants, class_of, known_mutants, versions
from fedassay.suites.mutation.versions import versions_of
from fedassay.suites.mutation.vertical_mutant import vertical_versions
from fedassay.suites.mutation.vote_mutant import vote_versions
from fedassay.suites.planning.run_plan import plan_run
from known_parts import transfer_parts, vertical_parts

CONTROLS = ("federation", "vertical federation", "transfer")
FEW = ['mutants.only=["control_no_clip", "visible_lots"]', "mutants.pilot_federations=400", "mutants.pilot=2000"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of two mutants, one mechanism and one federation."""
    return fedassay.run("mutants", overrides=FEW, seeds=2, jobs=1, folder=tmp_path_factory.mktemp("run") / "out")


def test_there_are_at_least_twenty_and_every_control_defense_is_one():
    known = known_mutants()
    assert len(known) >= 20
    assert {name for name in known if name.startswith("control_")} == {
        name for name, kind in known.items() if kind in CONTROLS
    }


def test_the_list_of_mutants_states_the_kind_that_each_is_audited_as():
    words = mutant_summaries()
    assert {name: line.partition(":")[0] for name, line in words.items()} == known_mutants()


def test_every_control_of_every_kind_of_federation_is_a_mutant_of_its_kind():
    for kind, parts in (("vertical federation", vertical_parts), ("transfer", transfer_parts)):
        own = {name for name, part in parts("defense").items() if part.control}
        assert len(own) >= 9
        assert own == {name for name, found in known_mutants().items() if found == kind}


def test_there_are_sixty_pairs_and_forty_correct_cases_and_none_of_them_is_a_defense():
    kinds = Counter(known_mutants().values())
    assert kinds["pair"] >= 60
    assert kinds["correct case"] >= 40
    assert not summaries("defense").keys() & {*faults(), *correct_cases()}


@pytest.mark.simulations
@pytest.mark.parametrize("name", [name for name, kind in known_mutants().items() if kind in ("mechanism", *CONTROLS)])
def test_every_mutant_names_its_bug_and_both_versions_state_one_claim(name, monkeypatch):
    for module in (vertical_mutant, vote_mutant):
        monkeypatch.setattr(module, "LEARNED_FROM", 200)  # The score is not used.
    assert "real bug" in class_of(name).__doc__.lower()
    assert versions(name).mutant().claim == versions(name).claim


@pytest.mark.simulations
def test_without_trials_pairs_and_correct_cases_are_checked_and_mechanisms_left_out(tmp_path):
    only = ["mutants.trials=false", 'mutants.only=["last_coordinate_bare", "triple_noise", "fixed_lots"]']
    run = fedassay.run("mutants", overrides=only, folder=tmp_path / "out", jobs=1)
    verdicts = {record.defense: (record.verdict, record.route) for record in run.records if record.role == "audit"}
    assert verdicts == {
        "last_coordinate_bare": ("REFUTED", "check"),
        "last_coordinate_bare (correct version)": ("NOT_REFUTED", ""),
        "triple_noise (correct version)": ("NOT_REFUTED", ""),
    }
    text = (run.folder / "report.md").read_text(encoding="utf-8")
    assert "Of 1 mutant with two faults in one protection, 1 refuted." in text
    assert "Of 1 unusual correct protection, 0 refuted." in text


def test_correct_cases_and_mechanisms_can_be_left_out():
    settings = load_suite("mutants", preset="quick")[0].mutants
    assert set(chosen_mutants(settings).values()) == {"federation", "vertical federation", "pair"}
    assert set(chosen_mutants(MutantsSpec()).values()) == set(known_mutants().values())


@pytest.mark.simulations
@pytest.mark.long
def test_without_trials_a_broken_version_that_no_check_refutes_is_tried(tmp_path):
    only = ["mutants.trials=false", 'mutants.only=["coin_reused"]']
    run = fedassay.run("mutants", overrides=only, folder=tmp_path / "out", jobs=1)
    assert {row.defense for row in run.records if row.verdict == "FAILED"} == {"coin_reused"}
    tried = {row.defense for row in run.records if row.metric == "check_all_that_is_received"}
    assert (tried, run.verdict.exit_code) == ({"coin_reused"}, 0)


@pytest.mark.long
@pytest.mark.simulations
def test_the_run_refutes_the_mutants_and_spares_their_correct_versions(finished):
    verdicts = {record.defense: record.verdict for record in finished.records if record.role == "audit"}
    assert verdicts == {
        "control_no_clip": "REFUTED",
        "control_no_clip (correct version)": "NOT_REFUTED",
        "visible_lots": "REFUTED",
        "visible_lots (correct version)": "NOT_REFUTED",
    }
    assert finished.verdict.exit_code == 0


@pytest.mark.long
@pytest.mark.simulations
def test_the_report_counts_kills_and_false_alarms(finished):
    for name in ("report.md", "report.html"):
        text = (finished.folder / name).read_text(encoding="utf-8")
        assert "2 of 2 mutants refuted: 2 by statistics, 0 by implementation checks alone" in text
        assert "Correct versions refuted: 0 of 2 (0 of 4 tests of one seed)" in text


@pytest.mark.simulations
@pytest.mark.parametrize(
    ("name", "pilot", "model"),
    [("control_bits_in_full", "pilot_federations=1000", "split"), ("control_votes_noise_once", "pilot=2000", "none")],
)
def test_a_run_refutes_the_broken_version_by_its_own_trials_and_spares_the_correct_one(tmp_path, name, pilot, model):
    only = [f'mutants.only=["{name}"]', f"mutants.{pilot}"]
    run = fedassay.run("mutants", overrides=only, seeds=2, jobs=1, folder=tmp_path / "out")
    audits = {record.defense: record for record in run.records if record.role == "audit"}
    verdicts = {defense: record.verdict for defense, record in audits.items()}
    assert verdicts == {name: "REFUTED", f"{name} (correct version)": "NOT_REFUTED"}
    assert {record.model for record in audits.values()} == {model}
    each = [record.value for record in run.records if record.metric == "refuted" and record.defense == name]
    assert (each, run.verdict.exit_code) == ([1.0, 1.0], 0)


def test_the_plan_has_a_job_for_each_mutant_of_any_kind_with_the_claim_of_both_versions():
    only = ["control_bits_in_full", "control_votes_noise_once", "triple_noise"]
    spec, source = load_suite("mutants", overrides=[f"mutants.only={only}"])
    plan = plan_run(resolve(spec, source, seed=0))
    assert [job.name for job in plan.mutants] == only
    stated = {(claim.defense, claim.federation, claim.control) for claim in plan.claims}
    assert stated == {
        ("control_bits_in_full", "vertical federations", True),
        ("control_bits_in_full (correct version)", "vertical federations", False),
        ("control_votes_noise_once", "transfers", True),
        ("control_votes_noise_once (correct version)", "transfers", False),
        ("triple_noise (correct version)", "correct cases", False),
    }
    assert len(plan.cells) == 5
    data = {cell.facts["federation"]: (cell.facts["dataset"], cell.facts["model"]) for cell in plan.cells}
    assert data == {
        "vertical federations": ("digits", "split"),
        "transfers": ("none", "none"),
        "correct cases": ("digits", "logistic"),
    }


def test_an_unknown_mutant_is_named_with_its_nearest(tmp_path):
    with pytest.raises(ConfigError, match=r"unknown mutant 'fixed_lot'; known: fixed_lots"):
        fedassay.run("mutants", overrides=['mutants.only=["fixed_lot"]'], folder=tmp_path / "out")


def test_only_a_suite_of_mutants_needs_no_federation(tmp_path):
    for text, words in (
        ('name = "x"', "defenses is missing"),
        ('name = "x"\n[federations]\n[defenses]', r"at least one \[federations.NAME\] table is needed"),
        ('name = "x"\n[mutants]\npilots = 3', "unknown key 'mutants.pilots'; known here: pilot"),
    ):
        (tmp_path / "x.toml").write_text(text)
        with pytest.raises(ConfigError, match=words):
            fedassay.run(str(tmp_path / "x.toml"), folder=tmp_path / "out")


def test_the_correct_version_of_a_control_is_the_defense_that_it_breaks_with_the_same_fields():
    assert correct_version(ControlNoClip(epsilon=3.0, clip_norm=0.5)) == DPSGD(epsilon=3.0, clip_norm=0.5)


def test_a_control_without_a_correct_version_is_refused():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Alone(fedassay.Defense):
        control = True

    with pytest.raises(ValueError, match="does not inherit from a correct defense"):
        correct_version(Alone())


@pytest.mark.parametrize(
    ("control", "prepared"),
    [
        (ControlNoClip, versions_of),
        (ControlBitsInFull, vertical_versions),
        (ControlVotesNoiseOnce, vote_versions),
    ],
)
def test_a_control_that_states_another_claim_is_refused(control, prepared):
    class Another(control):
        def prepare(self, plan):
            honest = super().prepare(plan)
            return dataclasses.replace(honest, claims=(dataclasses.replace(honest.claims[0], epsilon=9.0),))

    with pytest.raises(ValueError, match="must state the claim of its correct version"):
        prepared(Another())
