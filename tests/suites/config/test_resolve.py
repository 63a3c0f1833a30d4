"""From a checked suite to parts, plans, claims and identities: what is wrong is reported before anything runs."""

import dataclasses
import json
import os
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from fedassay.attacks.membership.attack_r import AttackR
from fedassay.attacks.membership.lira_offline import LiRAOffline
from fedassay.attacks.membership.lira_online import LiRAOnline
from fedassay.attacks.membership.rmia import RMIA
from fedassay.attacks.membership.shadow_attack import ShadowAttack
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.models.layers import Normalisation
from fedassay.fl.sampling import FixedSize, Full, Poisson
from fedassay.suites.config.compatibility import DEFAULT_SHADOWS, too_few
from fedassay.suites.config.resolve import (
    IDENTITY,
    audited,
    calibrated,
    identity,
    plain_data,
    plan_of,
    prepare,
    task_of,
)
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.tables.suite import AuditSpec
from hypothesis import given
from hypothesis import strategies as st
from suite_text import SHOWN

OWN = """\
from dataclasses import dataclass

from fedassay.defenses.defense import Defense, Prepared
from fedassay.fl.protection import Protection


@dataclass(frozen=True, kw_only=True)
class Mine(Defense):
    clip_norm: float | None = 1.0

    def prepare(self, plan):
        {body}
"""


def refusal(call, *arguments, **options):
    with pytest.raises(ConfigError) as refused:
        call(*arguments, **options)
    return str(refused.value)


def line_of(text, fragment):
    return next(number for number, line in enumerate(text.splitlines(), 1) if fragment in line)


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("epsilon = 4.0", "epsilon = -1.0", "epsilon = -1.0", "ldp_gaussian: epsilon must be a number > 0, got -1.0"),
        ("epsilon = 4.0", "epslion = 4.0", "epslion", "ldp_gaussian has no field 'epslion'; it has: epsilon"),
        ("[defenses.none]", "[defenses.nnoe]", "[defenses.nnoe]", "unknown defense 'nnoe'; known: none"),
        ("[defenses.none]", '[defenses.x]\npart = "nnoe"', "part =", "unknown defense 'nnoe'; known: none"),
        ("count = 8", "client = 0\ncount = 0", "count = 0", "loss: count must be"),
    ],
)
def test_a_parts_bad_field_is_reported_with_the_line_of_that_very_field(resolved, tiny, old, new, line, says):
    said = refusal(resolved, old, new)
    assert f".toml, line {line_of(tiny.replace(old, new), line)}: {says}" in said


def test_a_parts_bad_field_from_the_command_line_is_blamed_on_it(resolved):
    said = refusal(resolved, overrides=("defenses.ldp_gaussian.epsilon=-1",))
    assert said.startswith("--set defenses.ldp_gaussian.epsilon: ldp_gaussian: epsilon must be")


@pytest.mark.parametrize("dataset", ["digit", "./none.csv", "digits"])
def test_the_mistakes_of_all_parts_and_of_the_data_are_reported_at_once(resolved, dataset):
    parts, data = "[defenses.nnoe]\n\n[attacks.los]", f"federations.main.dataset={dataset}"
    said = refusal(resolved, "[defenses.none]", parts, overrides=("defenses.ldp_gaussian.epsilon=-1", data))
    assert [word in said for word in ("'nnoe'", "'los'", "epsilon must be")] == [True] * 3
    assert ("--set federations.main.dataset: " in said) == (dataset != "digits")


def test_a_label_may_name_another_part(resolved):
    suite = resolved("[defenses.none]", '[defenses.weak]\npart = "ldp_gaussian"\nepsilon = 100.0')
    assert [entry.label for entry in suite.defenses] == ["weak", "ldp_gaussian"]
    assert [entry.defense for entry in suite.defenses] == [LDPGaussian(epsilon=100.0), LDPGaussian(epsilon=4.0)]


def test_seeds_of_two_blocks_do_not_meet(resolved):
    assert resolved(overrides=("seeds=3",)).seeds == (0, 1, 2)
    assert resolved(overrides=("seeds=3",), seed=2).seeds == (6, 7, 8)
    assert "seed must be >= 0, got -1" in refusal(resolved, seed=-1)


def test_added_defenses_get_labels_of_their_own(resolved, own_module):
    module = own_module(OWN.format(body="..."))
    suite = resolved(extra=(f"{module}:Mine", "none", LDPGaussian(epsilon=1.0), f"{module}:Mine"))
    assert [entry.label for entry in suite.defenses] == [
        "none",
        "ldp_gaussian",
        "Mine",
        "none_2",
        "ldp_gaussian_2",
        "Mine_2",
    ]
    assert suite.spec.defenses["ldp_gaussian_2"].model_extra["epsilon"] == 1.0


@pytest.mark.parametrize("name", ["Défense", "A" * 60])
def test_any_class_name_gives_a_label_that_a_suite_file_could_hold(resolved, own_module, name):
    module = own_module(OWN.format(body="...").replace("class Mine", f"class {name}"))
    suite = resolved(extra=(f"{module}:{name}", f"{module}:{name}"))
    again = type(suite.spec).model_validate(suite.spec.model_dump(mode="json"))
    assert again == suite.spec


def test_an_added_field_of_none_is_kept(resolved, own_module):
    module = own_module(OWN.format(body="..."))
    mine = __import__(module).Mine(clip_norm=None)
    written = resolved(extra=(mine,)).spec.defenses["Mine"].model_dump(mode="json")
    assert {name: written[name] for name in ("part", "clip_norm")} == {"part": f"{module}:Mine", "clip_norm": None}


def test_a_federation_that_cannot_be_dealt_is_reported_as_such(resolved):
    suite = resolved("samples = 60", "samples = 1")
    said = refusal(prepare, suite, suite.defenses[0], "main", 0)
    assert ", line 9: federation main cannot be set up: each client needs at least one sample: " in said
    assert said.endswith("clients must be at most 1, the number of samples, got clients 2")


def test_a_model_that_does_not_fit_the_images_is_reported_as_the_federations(resolved):
    suite = resolved('"logistic"', '"cnn26k"')
    said = refusal(prepare, suite, suite.defenses[0], "main", 0)
    assert ": federation main cannot be set up: model cnn26k: cnn26k needs images of at least 14x14" in said


def test_a_plan_that_breaks_a_defenses_theorem_is_reported_with_both_names(resolved):
    suite = resolved("rounds = 2", "rounds = 2\ncohort = { epoch = 1 }", extra=(DPFedAvg(),))
    said = refusal(prepare, suite, suite.defenses[2], "main", 0)
    assert "defense dp_fedavg cannot be prepared for federation main: cohort must be Poisson or full" in said


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise ValueError('rounds must be even')", "cannot be prepared for federation main: rounds must be even"),
        ("raise RuntimeError('no licence')", "cannot be prepared for federation main: RuntimeError: no licence"),
        ("return None", "must return Prepared(protection, claims): got None"),
        ("return Protection()", "must return Prepared(protection, claims): got an object of type Protection"),
        ("return Prepared(protection=Protection, claims=())", "must return Prepared(protection, claims)"),
        ("return Prepared(protection=Protection(), claims=('private',))", "must return Prepared(protection, claims)"),
    ],
)
def test_a_defense_that_cannot_be_prepared_or_returns_rubbish_is_reported(resolved, own_module, body, says):
    module = own_module(OWN.format(body=body))
    suite = resolved(extra=(f"{module}:Mine",))
    said = refusal(prepare, suite, suite.defenses[2], "main", 0)
    assert "defense Mine" in said
    assert says in said


class Lawless(LDPGaussianProtection):
    """A protection whose law is what ``answer`` returns."""

    def answer(self):
        return 3.0

    def law(self, observer, plan, client):
        return self.answer()


class Failing(Lawless):
    def answer(self):
        return {}["noise"]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Lawless, "law(observer, plan, client) must return a law such as GaussianLaw, or None, got 3.0"),
        (Failing, "law(observer, plan, client) failed for client 0: KeyError: 'noise'"),
    ],
)
def test_a_law_that_is_none_is_reported_with_its_method(resolved, monkeypatch, kind, says):
    suite = resolved(extra=(LDPGaussian(),))
    right = LDPGaussian.prepare

    def prepared(self, plan):
        found = right(self, plan)
        return dataclasses.replace(found, protection=kind(**vars(found.protection)))

    monkeypatch.setattr(LDPGaussian, "prepare", prepared)
    assert refusal(prepare, suite, suite.defenses[2], "main", 0).endswith(says)


@pytest.mark.parametrize(
    ("change", "field", "changed", "kept"),
    [
        ("cohort = { poisson = 0.5 }", "cohort", Poisson(0.5), Full()),
        ("lot = { fixed_size = 3 }", "lot", FixedSize(3), Full()),
        (
            'algorithm = { name = "fedsgd", learning_rate = 0.1 }',
            "algorithm",
            FedSGD(learning_rate=0.1),
            FedSGD(learning_rate=0.5),
        ),
    ],
)
def test_a_defense_changes_its_own_plan_there_and_no_others(resolved, change, field, changed, kept):
    suite = resolved("[defenses.none]", f"[defenses.none]\nplan = {{ {change} }}")
    spec = suite.spec.federations["main"]
    own, other = (plan_of(spec, entry.change, task_of(spec, 0)) for entry in suite.defenses)
    assert (getattr(own, field), getattr(other, field)) == (changed, kept)
    assert dataclasses.replace(own, **{field: kept}) == other


def test_a_federation_that_shows_one_upload_borrows_the_calibration_of_its_basis(resolved):
    suite = resolved("[defenses.none]", SHOWN)
    ldp = suite.defenses[1]
    assert prepare(suite, ldp, "shown", 0).protection == prepare(suite, ldp, "main", 0).protection
    alone = resolved("[defenses.none]", SHOWN.replace('calibrated_on = "main"\n', ""))
    assert prepare(alone, ldp, "shown", 0).protection != prepare(suite, ldp, "main", 0).protection


def test_the_data_of_a_federation_depend_on_the_seed_and_on_nothing_else(resolved):
    spec = resolved().spec.federations["main"]
    first, again, other = task_of(spec, 0), task_of(spec.model_copy(), 0), task_of(spec, 1)
    assert first is again
    assert not first.parts[0].equal(other.parts[0]) or not first.images.equal(other.images)


def test_label_noise_reaches_the_pool_and_no_test_label(resolved):
    clean = task_of(resolved().spec.federations["main"], 0)
    noisy = task_of(resolved("rounds = 2", "rounds = 2\nlabel_noise = 0.5").spec.federations["main"], 0)
    assert (noisy.labels != clean.labels).any()
    assert (noisy.outsider_labels != clean.outsider_labels).any()
    assert (noisy.test_labels == clean.test_labels).all()


def test_a_normalisation_reaches_the_model_of_every_seed_and_only_an_audit_on_the_same_data(resolved):
    suite = resolved("rounds = 2", "rounds = 2\nnormalise = { mean = 0.3, std = [0.4] }").spec
    spec = suite.federations["main"]
    assert task_of(spec, 1).network.normalisation == Normalisation(mean=(0.3,), std=(0.4,))
    assert "normalise" not in resolved().spec.federations["main"].model_dump()
    same, other = (audited(spec, AuditSpec(dataset=name)) for name in (None, "synthetic_receipts"))
    assert same.normalise == spec.normalise
    assert other.normalise is None


def test_constants_for_another_number_of_channels_are_refused_with_their_line(resolved, tiny):
    wrong = "rounds = 2\nnormalise = { mean = [0.3, 0.3], std = [1.0, 1.0] }"
    suite = resolved("rounds = 2", wrong)
    said = refusal(prepare, suite, suite.defenses[0], "main", 0)
    assert f"line {line_of(tiny.replace('rounds = 2', wrong), 'normalise')}" in said
    assert "one for each of the 1 channels, got 2" in said


@pytest.fixture
def prepared_for(monkeypatch):
    """The plans that LDPGaussian was prepared for, in order."""
    plans, right = [], LDPGaussian.prepare

    def counted(self, plan):
        plans.append(plan)
        return right(self, plan)

    monkeypatch.setattr(LDPGaussian, "prepare", counted)
    return plans


def test_equal_plans_of_two_seeds_are_one_calibration_and_another_plan_is_a_second(resolved, prepared_for):
    suite = resolved("seeds = 1", "seeds = 2", extra=(LDPGaussian(),))
    first, second = (prepare(suite, suite.defenses[2], "main", seed) for seed in (0, 1))
    assert first is second
    assert len(prepared_for) == 1
    longer = dataclasses.replace(prepared_for[0], rounds=prepared_for[0].rounds + 1)
    assert calibrated(suite.defenses[2].defense, longer).claims != first.claims
    assert len(prepared_for) == 2


def test_another_budget_is_another_calibration(resolved, prepared_for):
    suite = resolved(extra=(LDPGaussian(),))
    plan = (prepare(suite, suite.defenses[2], "main", 0), prepared_for[0])[1]
    assert calibrated(LDPGaussian(epsilon=3.0), plan).claims != calibrated(LDPGaussian(epsilon=2.0), plan).claims


def test_a_defense_that_cannot_be_hashed_is_prepared_each_time(resolved, prepared_for):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Listing(LDPGaussian):
        notes: list = dataclasses.field(default_factory=list)

    suite = resolved(extra=(LDPGaussian(),))
    prepare(suite, suite.defenses[2], "main", 0)
    plan = prepared_for[0]
    one, two = (calibrated(Listing(), plan) for _ in range(2))
    assert one.claims == two.claims
    assert len(prepared_for) == 3


FACTS = {"seed": 3, "epsilon": 4.0, "name": "ü", "list": [1, None, True], "table": {"b": 1, "a": 0.1}}
PINNED = "4fad95583fbdcfaf"
"""The SHA-256 of FACTS in canonical JSON, as sha256sum gives it. If it changes, resumed runs no longer know their
cells: change IDENTITY with it, knowingly."""

plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def test_the_pinned_value_stands():
    assert IDENTITY == "identity-6"
    assert identity(**FACTS) == PINNED


def test_another_process_finds_the_same_value():
    code = f"from fedassay.suites.config.resolve import identity; print(identity(**{FACTS!r}))"
    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "7"},
    )
    assert out.stdout.strip() == PINNED


def test_the_order_of_the_facts_does_not_count():
    turned = {key: FACTS[key] for key in reversed(FACTS)} | {"table": {"a": 0.1, "b": 1}}
    assert identity(**turned) == PINNED


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 4},
        {"epsilon": 4.000000000000001},
        {"name": "u"},
        {"list": [None, 1, True]},
        {"table": {"a": 1, "b": 0.1}},
        {"one more": None},
    ],
)
def test_any_other_fact_gives_another_value(change):
    assert identity(**(FACTS | change)) != PINNED


@given(plain_values, plain_values)
def test_two_facts_share_a_value_only_if_they_are_written_alike(one, other):
    alike = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (identity(fact=one) == identity(fact=other)) == alike


def test_what_is_no_plain_data_is_refused():
    with pytest.raises(TypeError):
        identity(fact=object())


@given(plain_values)
def test_plain_data_stays_as_it_is(value):
    assert plain_data(value) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        ((1, (2, 3)), [1, [2, 3]]),
        ({1: np.float64(2.0)}, {"1": 2.0}),
        (float("inf"), "inf"),
        (range(3), "range(0, 3)"),
    ],
)
def test_other_values_become_plain(value, expected):
    assert plain_data(value) == expected
    identity(fact=plain_data(value))


# A candidate is in one model of each pair, and the target's pair is left out.
@pytest.mark.parametrize(("attack", "least"), [(AttackR, 4), (RMIA, 4), (LiRAOffline, 6), (LiRAOnline, 6)])
def test_each_attack_has_its_least_number(attack, least):
    assert f"{least} suffice" in too_few(attack(), least - 2)
    assert [too_few(attack(), count) for count in (least, DEFAULT_SHADOWS)] == ["", ""]


@dataclass(frozen=True, kw_only=True)
class Own(ShadowAttack):
    """Refuses, or fails, whatever the number of models."""

    error: type[Exception] = ValueError

    def scores(self, references, target):
        raise self.error("not today")


@pytest.mark.parametrize("error", [ValueError, KeyError])
def test_an_attack_that_always_fails_is_left_to_the_run(error):
    assert too_few(Own(error=error), 4) == ""
