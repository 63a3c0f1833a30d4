"""What a run consists of: each cell once, named by all that determines its rows and by nothing else."""

import math
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.metrics import ScoresByRun, area
from fedassay.fl import engine, replay
from fedassay.reports.reading.pooling import mean_over_seeds
from fedassay.suites.attacking import shadows, trial
from fedassay.suites.audits import case
from fedassay.suites.audits.power import enough_replicas
from fedassay.suites.config import resolve as resolve_module
from fedassay.suites.config.resolve import audited, resolve
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.planning.plan_text import AttackPower, headline, plan_lines, weak_attacks
from fedassay.suites.planning.run_plan import plan_run
from suite_text import SHOWN

TOO_MANY = """[federations.many]
clients = 2
rounds = 1
samples = 2000
algorithm = { name = "fedsgd", learning_rate = 1.0 }

"""
WARM_START = "warm_start = { samples = 20, steps = 2, learning_rate = 0.1 }"


def test_a_defense_that_asks_for_few_seeds_runs_on_the_first_of_them(planned):
    plan = planned("[defenses.none]", "[defenses.none]\nseeds = 2", overrides=("seeds=4",))
    ran = {(job.training.facts["defense"], job.seed) for job in plan.trials}
    assert ran == {("none", 0), ("none", 1), *(("ldp_gaussian", seed) for seed in range(4))}
    few = planned("delta = 1e-5", "delta = 1e-5\nseeds = 3", overrides=("seeds=4",))
    assert [block.seed for block in few.audits[0].blocks] == [0, 1, 2]
    assert sum(block.replicas for block in few.audits[0].blocks) == 40
    whole = ids(planned(overrides=("seeds=4",)), attack="training")
    assert ids(plan, attack="training").items() <= whole.items(), "a seed's trial is the same with fewer beside it"


def ids(plan, **facts):
    """(defense, attack, seed) -> id, of the cells with these facts."""
    chosen = [cell for cell in plan.cells if all(cell.facts[name] == value for name, value in facts.items())]
    return {(cell.facts["defense"], cell.facts["attack"], cell.facts["seed"]): cell.cell_id for cell in chosen}


def test_the_small_suite_has_two_trials_one_block_and_one_audit(planned):
    plan = planned()
    roles = Counter(cell.facts["role"] for cell in plan.cells)
    assert roles == {"utility": 2, "attack": 2, "null": 2, "replicas": 1, "audit": 1}
    assert [(claim.defense, claim.federation, claim.control) for claim in plan.claims] == [
        ("ldp_gaussian", "main", False)
    ]
    assert headline(plan) == "2 defenses x 2 attacks, 1 seed: 2 federations; 1 audit on 80 replicas; 8 cells"


@pytest.mark.parametrize(("replicas", "seeds"), [(40, 3), (7, 2), (2, 3)])
def test_the_seeds_share_the_replicas_and_none_is_lost(planned, replicas, seeds):
    plan = planned("replicas = 40", f"replicas = {replicas}", overrides=(f"seeds={seeds}",))
    shares = [block.replicas for block in plan.blocks]
    assert sum(shares) == replicas
    assert max(shares) - min(shares) <= 1
    assert len({block.seed for block in plan.blocks}) == len(shares) == min(replicas, seeds)


def test_alpha_is_shared_equally_by_the_claims(planned):
    both = planned("[defenses.none]", '[defenses.other]\npart = "ldp_gaussian"\nepsilon = 2.0\n\n[defenses.none]')
    assert [audit.alpha for audit in both.audits] == [0.025, 0.025]
    assert [audit.alpha for audit in planned().audits] == [0.05]


@pytest.mark.parametrize("name", ["quick"])
def test_no_two_cells_of_a_bundled_suite_share_an_id(name):
    spec, source = load_suite(name)
    plan = plan_run(resolve(spec, source, seed=0))
    counted = Counter(cell.cell_id for cell in plan.cells)
    assert max(counted.values()) == 1
    assert len(plan.cells) == 151


def test_one_configuration_under_two_labels_is_two_cells(planned):
    # `fedassay run quick -d dp_sgd`: the same part with the same fields as the suite's own.
    plan = planned(extra=("ldp_gaussian",))
    labels = Counter(cell.facts["defense"] for cell in plan.cells)
    assert labels["ldp_gaussian"] == labels["ldp_gaussian_2"] == 5
    assert len({cell.cell_id for cell in plan.cells}) == len(plan.cells)


@pytest.mark.parametrize(
    ("changes", "options", "same"),
    [
        (("epsilon = 4.0", "epsilon = 3.0"), {}, {"none"}),
        (("[defenses.none]", "[defenses.none]\nplan = { lot = { poisson = 0.5 } }"), {}, {"ldp_gaussian"}),
        (("rounds = 2", "rounds = 3"), {}, set()),
        (("rounds = 2", f"rounds = 2\n{WARM_START}"), {}, set()),
        ((), {"seed": 1}, set()),
        (("alpha = 0.05", "alpha = 0.04"), {}, {"none", "ldp_gaussian"}),
        (("description", "# description"), {}, {"none", "ldp_gaussian"}),
    ],
)
def test_a_change_gives_new_ids_to_the_trials_that_it_touches_and_to_no_other(planned, changes, options, same):
    before, after = planned(), planned(*changes, **options)
    for role in ("utility", "attack", "null"):
        old, new = (ids(plan, role=role) for plan in (before, after))
        old, new = ({key[:2]: value for key, value in found.items()} for found in (old, new))
        assert {key[0] for key in old if old[key] == new[key]} == same


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("[attacks.loss]\ncount = 8", "[attacks.loss]\ncount = 7", {"loss"}),
        ("[defenses.none]", '[defenses.more]\npart = "none"\n\n[defenses.none]', set()),
        # Claims share alpha.
        ("[defenses.none]", '[defenses.more]\npart = "ldp_gaussian"\n\n[defenses.none]', {"likelihood_ratio"}),
        ("batch = 16", "batch = 8", {"canary", "likelihood_ratio"}),
        ("noise_shares = [0.5]", "noise_shares = [0.4]", {"canary", "likelihood_ratio"}),
        ("= 40", "= 41", {"canary", "likelihood_ratio"}),
    ],
)
def test_a_change_gives_new_ids_to_the_attacks_and_audits_that_it_touches(planned, old, new, changed):
    before, after = planned(), planned(old, new)
    assert {key[1] for key, value in ids(before).items() if ids(after)[key] != value} == changed
    assert before.run_id != after.run_id


def test_another_data_digest_changes_every_cell(planned, monkeypatch):
    before = planned()
    real = resolve_module.load_dataset

    class Changed:
        def __init__(self, dataset):
            self.dataset, self.digest = dataset, "0" * 64

        def __getattr__(self, name):
            return getattr(self.dataset, name)

    monkeypatch.setattr(resolve_module, "load_dataset", lambda name: Changed(real(name)))
    after = planned()
    assert not set(ids(before).values()) & set(ids(after).values())
    assert before.run_id != after.run_id


def test_a_new_version_of_a_part_changes_its_cells(planned, monkeypatch):
    from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian

    before = planned()
    monkeypatch.setattr(LDPGaussian, "version", "2")
    after = planned()
    changed = {key[0] for key, value in ids(before).items() if ids(after)[key] != value}
    assert changed == {"ldp_gaussian"}
    assert before.run_id != after.run_id


def test_an_audits_rows_name_the_data_and_model_that_were_used(planned):
    plan = planned('"logistic"', '"mlp"')
    models = {cell.facts["role"]: cell.facts["model"] for cell in plan.cells}
    assert models == {"utility": "mlp", "attack": "mlp", "null": "mlp", "replicas": "logistic", "audit": "logistic"}


def test_an_audit_on_other_data_takes_as_many_samples_as_these_have(resolved):
    spec = resolved().spec
    main = spec.federations["main"].model_copy(update={"samples": 2000})
    other = spec.audit.model_copy(update={"dataset": "digits"})
    assert audited(main.model_copy(update={"dataset": "fashion_mnist"}), other).samples is None
    assert audited(main, other).samples == 2000


def test_more_samples_or_clients_than_the_data_have_are_refused_by_the_plan_with_all_lines(planned):
    with pytest.raises(ConfigError) as refused:
        planned(
            "[audit]\n",
            TOO_MANY + '[audit]\ndataset = "synthetic_receipts"\n',
            overrides=("federations.main.clients=400", "federations.main.samples=400"),
        )
    said = str(refused.value).splitlines()
    assert len(said) == 2
    # The audit on other data takes as many clients and samples as these have; the attack has too few candidates.
    assert "line 21: attack loss on federation main: count" in said[0]
    assert "line 29" in said[1]
    assert "federation many cannot be set up: samples must be at most 1213" in said[1]


def test_a_federation_that_borrows_its_calibration_is_attacked_but_neither_measured_nor_audited(planned):
    plan = planned("[defenses.none]", SHOWN, "[attacks.loss]", '[attacks.idlg]\nfederation = "shown"\n\n[attacks.loss]')
    shown = [cell.facts for cell in plan.cells if cell.facts["federation"] == "shown"]
    assert {(fact["role"], fact["attack"]) for fact in shown} == {("attack", "idlg")}
    assert {claim.federation for claim in plan.claims} == {"main"}


def test_an_attack_on_several_federations_is_a_cell_of_each(planned):
    both = '[attacks.idlg]\nfederation = ["main", "shown"]\n\n[attacks.loss]'
    cells = planned("[defenses.none]", SHOWN, "[attacks.loss]", both).cells
    idlg = [cell for cell in cells if cell.facts["attack"] == "idlg" and cell.facts["defense"] == "none"]
    assert sorted(cell.facts["federation"] for cell in idlg) == ["main", "shown"]
    assert len({cell.cell_id for cell in idlg}) == 2


def test_a_plan_change_is_not_carried_over_to_a_federation_of_one_upload(planned):
    plan = planned(
        "[defenses.none]",
        SHOWN + "\nplan = { cohort = { poisson = 0.5 } }",
        "[attacks.loss]",
        '[attacks.idlg]\nfederation = "shown"\n\n[attacks.loss]',
    )
    first = [t for t in plan.trials if t.cells[0].facts["defense"] == "none"]
    assert {t.cells[0].facts["federation"]: t.change.cohort for t in first} == {
        "main": {"poisson": 0.5},
        "shown": None,
    }


def test_more_candidates_than_a_client_has_samples_are_refused_before_the_run(planned):
    with pytest.raises(ConfigError, match=r"line 21: attack loss on federation main: count .*1\.\.30, got 1000000"):
        planned("[attacks.loss]\ncount = 8", "[attacks.loss]\ncount = 1000000")


def best_bound(n, alpha):
    """What no error among n replicas per arm proves, each rate at alpha / 2 (delta 1e-5)."""
    high = 1 - (alpha / 2) ** (1 / n)
    return math.log((1 - high - 1e-5) / high)


def test_the_plan_text_states_for_every_claim_what_its_audit_can_show(planned):
    lines = plan_lines(planned("replicas = 40", "replicas = 2000"))
    assert lines[0] == "train  main: digits, logistic, 2 clients, 2 rounds, 2 federations"
    assert lines[1].startswith("audit  ldp_gaussian: eps 4, delta 1e-5, one report (replace-one), adversary:")
    # Two tests share alpha: one for half the noise, one for a missing clip.
    assert f": 2000 replicas per arm, max certifiable {best_bound(2000, 0.05 / 2):.2f}," in lines[1]
    assert ", min detectable " in lines[1]
    assert lines[1].endswith(" (power .9 at alpha 0.05)")


def test_the_plan_text_names_the_audited_model_where_the_federation_trains_another(planned):
    assert "audited on" not in plan_lines(planned("replicas = 40", "replicas = 2000"))[1]
    lines = plan_lines(planned('model = "logistic"', 'model = "mlp"'))
    assert lines[0].startswith("train  main: digits, mlp,")
    assert ", audited on digits with logistic, not mlp: " in lines[1]


def test_the_plan_text_reports_a_model_that_returns_probabilities(planned, own_module):
    head = "from torch import nn\ndef part(shape, classes):\n    linear = nn.Linear(shape[1] * shape[2], classes)\n"
    for number, layers in enumerate(("linear, nn.Softmax(1)", "linear, nn.LogSoftmax(1)", "linear")):
        name = own_module(f"{head}    return nn.Sequential(nn.Flatten(), {layers})\n", name=f"own_output_{number}")
        lines = plan_lines(planned('model = "logistic"', f'model = "{name}:part"'))
        assert any(line.startswith(f"model  {name}:part: each row of its outputs") for line in lines) is (number == 0)


def test_the_plan_text_states_what_each_estimator_needs_to_refute_half_the_noise(planned):
    line = plan_lines(planned("replicas = 40", "replicas = 5"))[2]
    costs = dict(part.rsplit(" ", 1) for part in line.partition("is missing: ")[2].split(", "))
    assert list(costs) == ["trade-off curve", "epsilon alone", "effect size", "e-process"]
    counts = {route: int(count.replace(",", "")) for route, count in costs.items()}
    assert counts["effect size"] < counts["trade-off curve"]
    assert max(counts["e-process"], counts["trade-off curve"]) < counts["epsilon alone"]


def test_a_claim_gets_as_many_runs_as_it_needs_where_the_suite_allows_more(planned):
    few = planned("replicas = 40", "replicas = 20")
    (audit,) = planned("replicas = 40", "replicas = 20\nmost_replicas = 100000").audits
    assert few.audits[0].blocks[0].replicas == 20
    needed = audit.blocks[0].replicas
    assert 20 < needed < 100_000
    assert enough_replicas(audit.claim, alpha=audit.alpha, limit=100_000) == needed
    line = plan_lines(planned("replicas = 40", "replicas = 20\nmost_replicas = 100000"))[1]
    assert f"{needed} replicas per arm (chosen for this claim; the suite allows 100000)" in line
    # Too little for any use: the number stays.
    (audit,) = planned("replicas = 40", "replicas = 5\nmost_replicas = 6").audits
    assert audit.blocks[0].replicas == 5


def _interval(chance, units, seeds):
    return AttackPower("main", units, chance, seeds)


@pytest.mark.parametrize(("chance", "units", "seeds"), [(0.5, (5, 5), 4), (0.5, (40, 10), 3), (0.1, (8,), 3)])
def test_the_predicted_width_is_that_of_the_intervals_that_guessing_gets(chance, units, seeds):
    rng = np.random.default_rng(0)

    def guessed():
        if len(units) == 1:
            return rng.binomial(units[0], chance) / units[0]
        return area(ScoresByRun.of(*(rng.normal(size=n) for n in units)))

    pooled = [mean_over_seeds([guessed() for _ in range(seeds)]) for _ in range(3000)]
    squares = [((one.high - one.low) / 2) ** 2 if one.low is not None else 0.0 for one in pooled]
    assert _interval(chance, units, seeds).half_width == pytest.approx(np.mean(squares) ** 0.5, rel=0.06)


def test_the_plan_warns_of_an_attack_halfway_to_certainty_that_is_not_told_from_guessing(planned):
    enough = ("[attacks.loss]\ncount = 8", "[attacks.loss]\ncount = 30")
    assert "loss on main" not in weak_attacks(planned(*enough, overrides=("seeds=3",)))
    (few,) = [line for line in weak_attacks(planned(overrides=("seeds=3",))).split("; ") if "loss" in line][:1]
    assert "8 + 8 candidates, 3 seeds" in few
    assert f"attack {few}" in "; ".join(plan_lines(planned(overrides=("seeds=3",))))
    assert "two seeds give no confidence interval" in weak_attacks(planned(*enough, overrides=("seeds=2",)))


def test_as_many_seeds_or_candidates_as_the_plan_names_would_do_and_no_fewer():
    weak = _interval(0.5, (5, 5), 3)
    seeds, least, other = map(
        int, re.search(r"; (\d+) seeds or (\d+) \+ (\d+) candidates", weak.words(["loss"])).groups()
    )
    assert least == other
    assert [_interval(0.5, (5, 5), n).weak for n in (3, seeds - 1, seeds)] == [True, True, False]
    assert [_interval(0.5, (n, n), 3).weak for n in (5, least - 1, least)] == [True, True, False]


UNAUDITABLE = """\
from dataclasses import dataclass, replace

from fedassay.audit.claim import {name}
from fedassay.defenses.defense import Prepared
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian


@dataclass(frozen=True, kw_only=True)
class Mine(LDPGaussian):
    def prepare(self, plan):
        honest = super().prepare(plan)
        claims = tuple(replace(claim, {change}) for claim in honest.claims)
        return Prepared(protection=honest.protection, claims=claims)
"""


def test_the_plan_text_states_why_a_claim_that_no_canary_covers_is_not_audited(planned, own_module):
    module = own_module(UNAUDITABLE.format(name="Unit", change="unit=Unit.USER"))
    (line,) = (line for line in plan_lines(planned(extra=(f"{module}:Mine",))) if line.startswith("audit  Mine: "))
    assert (
        "OUT OF SCOPE: this claim is not audited, because no canary exists for the unit user under replace_one" in line
    )


def test_the_gates_margins_are_no_part_of_a_run(planned):
    """So that a run may be judged, or go on, under others."""
    loose = planned('name = "tiny"', 'name = "tiny"\ngate.margins = { auc = 0.2 }')
    assert (loose.run_id, ids(loose)) == (planned().run_id, ids(planned()))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0, None, "2", True])
def test_spending_that_is_no_epsilon_names_the_defense(planned, wrong):
    signed = next(iter(planned().claims))
    spent = replace(signed, marks=(1,), spending=lambda rounds: wrong)
    with pytest.raises(ConfigError, match=rf"defenses\.{signed.defense}: spending\(1\), .* must be a number >= 0, got"):
        spent.to_dict()


@pytest.mark.simulations
def test_of_very_many_audits_the_first_hundred_are_described(planned):
    many = "".join(
        f'[defenses.d{number}]\npart = "ldp_gaussian"\nepsilon = 4.0\ndelta = 1e-5\n\n' for number in range(101)
    )
    plan = planned("[defenses.none]", f"{many}[defenses.none]")
    lines = plan_lines(plan)
    assert len(plan.audits) == 102
    assert sum(line.startswith("audit  d") or line.startswith("audit  ldp") for line in lines) == 100
    assert [line for line in lines if line.startswith("audit")][
        -1
    ] == "audit  2 more audits are not shown: select their defenses by --only to see them"


def test_an_executor_gives_its_federation_other_cells_and_no_executor_the_cells_of_before(planned):
    usual, named = planned(), planned(overrides=('federations.main.executor="batched"',))
    assert not {cell.cell_id for cell in usual.cells} & {cell.cell_id for cell in named.cells}
    assert {job.federation.executor for job in named.trials} == {"batched"}
    assert "executor" not in usual.trials[0].federation.model_dump()


@pytest.mark.parametrize("place", ["federations.main", "audit"])
def test_an_executor_that_cannot_train_a_model_is_refused_before_the_run(planned, place):
    compiled = ('federations.main.executor="compiled"', f'{place}.model="lenet_bn"')
    with pytest.raises(ConfigError, match=r"executor compiled .* batch norm"):
        planned(overrides=compiled)


@pytest.mark.parametrize("design", ["independent", "one_run"])
def test_a_plan_trains_nothing(planned, monkeypatch, design):
    for module in (case, engine, replay, shadows, trial):
        monkeypatch.setattr(module, "run_federation", lambda *arguments, **given: pytest.fail("a federation was run"))
    changes = ("audit.design=one_run", "audit.canaries=20") if design == "one_run" else ()
    plan = planned(overrides=changes, extra=("dp_fedavg", "dp_sgd"))
    assert len(plan.audits) >= 3
    assert plan_lines(plan)


def test_a_federation_that_borrows_its_calibration_and_is_not_attacked_is_not_run(planned):
    assert {cell.facts["federation"] for cell in planned("[defenses.none]", SHOWN).cells} == {"main"}
