"""Membership by observer: the best attack of a cell, its intervals, and what no claim speaks about."""

import zipfile

import numpy as np
import pytest
from fedassay.audit.claim import Unit
from fedassay.audit.metrics import ScoresByRun, area_interval, joint_statement, tpr_at
from fedassay.audit.observer import GLOBAL_MODELS, UPLOADS
from fedassay.audit.wording import at_most
from fedassay.reports.reading.membership import memberships
from fedassay.reports.tables.membership_table import membership_table

SERVER = "the server that observes individual updates and who takes part: one sample"
PUBLIC = "the public (final model): one sample"


def normal(shift, count=60, seed=0):
    rng = np.random.default_rng(seed)
    return {"member": rng.normal(shift, 1, count), "nonmember": rng.normal(0, 1, count)}


def cells(folder):
    table = membership_table(folder)
    return {
        (row[0], row[1], header): text for row in table.rows for header, text in zip(table.headers, row, strict=True)
    }


def test_a_cell_names_the_best_attack_with_intervals_shared_by_all(run_maker, add_membership):
    weak, strong = normal(0.2), normal(1.5, seed=1)
    add_membership(run_maker, "none", "weak", **weak)
    add_membership(run_maker, "none", "strong", **strong)
    add_membership(run_maker, "none", "coin", role="null", **normal(5.0))
    found = area_interval(ScoresByRun.of(**strong), 1 - 0.05 / 2)
    rate = tpr_at(strong["member"], strong["nonmember"], 0.2)
    assert cells(run_maker.write())["none", "NO CLAIM", SERVER] == (
        f"AUC {found.value:.3f} [{found.low:.3f}, {found.high:.3f}]†; "
        f"TPR {rate:.3f} at FPR 20 % (point estimate); strong"
    )


def test_runs_that_are_enough_state_both_rates(run_maker, add_membership):
    given, runs = normal(2.0, 200), np.arange(200)
    add_membership(run_maker, "none", **given, member_runs=runs, nonmember_runs=runs)
    sides = ScoresByRun.of(**given, member_runs=runs, nonmember_runs=runs)
    said = joint_statement(sides, 0.1, 0.05)
    words = cells(run_maker.write())["none", "NO CLAIM", SERVER]
    assert f"at FPR 10 % (≤ {at_most(said.fpr_high)})" in words
    low = float(words.partition("(≥ ")[2].partition(")")[0])
    assert said.tpr_low - 0.001 < low <= said.tpr_low
    assert "point estimate" not in words
    assert "†" not in words


def test_two_seeds_are_two_runs_and_have_no_interval(run_maker, add_membership):
    for seed in (0, 1):
        add_membership(run_maker, "none", seed=seed, **normal(1.0, seed=seed))
    words = cells(run_maker.write())["none", "NO CLAIM", SERVER]
    assert words.startswith("AUC 0.")
    assert " (2 seeds, no interval); TPR" in words
    assert not {"[", "†"} & set(words)


def shadows(value, error=None, freedom=7, shift=1.0, count=60):
    run = np.repeat(np.arange(4), count // 4)
    told = {} if error is None else {"auc_error": error, "auc_freedom": freedom}
    return {**normal(shift, count), "member_run": run, "nonmember_run": run, "auc": value, **told}


def test_references_of_each_other_have_the_mean_over_targets_with_its_own_interval(run_maker, add_membership):
    """Two attacks: each interval at 97.5 %; t of 7 degrees of freedom has 2.8412 there. Rates are estimates, however
    many federations there are, and of the 60 non-members that each has.
    """
    add_membership(run_maker, "none", "weak", **shadows(0.61, 0.01, count=240))
    add_membership(run_maker, "none", "strong", **shadows(0.7, 0.02, count=240))
    add_membership(run_maker, "none", "coin", role="null", **shadows(0.9, 0.02, count=240))
    given = normal(1.0, 240)
    rate = tpr_at(given["member"], given["nonmember"], 0.2)
    ends = 0.7 - 2.8412 * 0.02, 0.7 + 2.8412 * 0.02
    assert cells(run_maker.write())["none", "NO CLAIM", SERVER] == (
        f"AUC 0.700 [{ends[0]:.3f}, {ends[1]:.3f}]‡; TPR {rate:.3f} at FPR 20 % (point estimate); strong"
    )


def test_seeds_of_shadow_federations_add_their_errors_in_squares(run_maker, add_membership):
    add_membership(run_maker, "none", seed=0, **shadows(0.6, 0.03))
    add_membership(run_maker, "none", seed=1, **shadows(0.8, 0.04))
    (one,) = memberships(run_maker.write())
    assert one.area == pytest.approx(0.7)
    assert one.shadowed.error == pytest.approx(0.05 / 2)
    # Satterthwaite: 25^2 / (9^2 / 7 + 16^2 / 7).
    assert one.shadowed.freedom == pytest.approx(7 * 625 / 337)
    assert (one.sides.runs, len(one.sides.member)) == (8, 120)


def test_too_few_shadow_federations_have_no_interval(run_maker, add_membership):
    add_membership(run_maker, "none", **shadows(0.6))
    assert cells(run_maker.write())["none", "NO CLAIM", SERVER].startswith("AUC 0.600‡; too few ")


def test_what_no_claim_speaks_about_is_marked_and_shown(run_maker, make_claim, add_membership):
    run_maker.sign("dp_sgd", make_claim(4.0, unit=Unit.SAMPLE, observer=GLOBAL_MODELS))
    run_maker.sign("dp_fedavg", make_claim(8.0, unit=Unit.CLIENT, observer=UPLOADS))
    for defense in ("dp_sgd", "dp_fedavg", "none"):
        add_membership(run_maker, defense, "align", **normal(1.0))
        add_membership(run_maker, defense, "loss", observer="final_model", **normal(0.5))
    found = cells(run_maker.write())
    server, public = (found["dp_sgd", "one sample: ε 4, δ 1e-5", name] for name in (SERVER, PUBLIC))
    assert server.startswith("AUC ")
    assert server.endswith("align; OUT OF SCOPE")
    assert public.endswith("; loss")
    for name in (SERVER, PUBLIC):
        assert found["dp_fedavg", "one client: ε 8, δ 1e-5", name].endswith("OUT OF SCOPE")
        assert "OUT OF SCOPE" not in found["none", "NO CLAIM", name]


def test_a_defense_that_claims_two_units_has_two_rows(run_maker, make_claim, add_membership):
    for unit in (Unit.SAMPLE, Unit.CLIENT):
        run_maker.sign("dp_sgd", make_claim(4.0, unit=unit, observer=UPLOADS))
    add_membership(run_maker, "dp_sgd", **normal(1.0))
    add_membership(run_maker, "dp_sgd", "who", unit="client", **normal(1.0))
    found = cells(run_maker.write())
    client = "the server that observes individual updates and who takes part: one client"
    assert "OUT OF SCOPE" not in found["dp_sgd", "one sample: ε 4, δ 1e-5", SERVER]
    assert "OUT OF SCOPE" in found["dp_sgd", "one sample: ε 4, δ 1e-5", client]
    assert "OUT OF SCOPE" in found["dp_sgd", "one client: ε 4, δ 1e-5", SERVER]
    assert "OUT OF SCOPE" not in found["dp_sgd", "one client: ε 4, δ 1e-5", client]


def test_cells_that_failed_or_were_not_attacked_are_not_left_out(run_maker, make_claim, add_membership):
    run_maker.sign("dp_fedavg", make_claim(8.0, unit=Unit.CLIENT, observer=UPLOADS))
    add_membership(run_maker, "none", "align", **normal(1.0))
    add_membership(run_maker, "none", "loss", observer="final_model", **normal(1.0))
    run_maker.row(defense="dp_fedavg", attack="align", observer="uploads", metric="none", status="failed", reason="x")
    run_maker.row(
        defense="ldp_gaussian", attack="align", observer="uploads", metric="none", status="skipped", reason="y"
    )
    found = cells(run_maker.write())
    assert found["dp_fedavg", "one client: ε 8, δ 1e-5", SERVER] == "failed; OUT OF SCOPE"
    assert found["dp_fedavg", "one client: ε 8, δ 1e-5", PUBLIC] == "not attacked; OUT OF SCOPE"
    assert found["ldp_gaussian", "NO CLAIM", SERVER] == "skipped"
    assert found["ldp_gaussian", "NO CLAIM", PUBLIC] == "not attacked"


@pytest.mark.parametrize(
    ("count", "says"), [(19, "too few non-members for a TPR"), (20, "at FPR 50 % (point estimate)")]
)
def test_a_rate_is_not_even_estimated_below_twenty_non_members(run_maker, add_membership, count, says):
    add_membership(run_maker, "none", **normal(1.0, count))
    assert says in cells(run_maker.write())["none", "NO CLAIM", SERVER]


def test_constant_scores_have_no_interval_and_find_no_member(run_maker, add_membership):
    add_membership(run_maker, "none", member=np.ones(30), nonmember=np.ones(30))
    assert cells(run_maker.write())["none", "NO CLAIM", SERVER].startswith("AUC 0.500; TPR 0.000 at FPR 50 %")


WHOSE = "the server that observes individual updates and who takes part: client of a sample"


def source_row(run, defense, value, *, seed=0, attack="source", role="attack", adjacency="replace_one"):
    told = {"unit": "sample", "adjacency": adjacency, "rounds": 20, "design": "clustered"}
    cell_id = f"{attack}_{defense}_{seed}"
    run.row(
        cell_id=cell_id,
        defense=defense,
        attack=attack,
        role=role,
        seed=seed,
        observer="uploads",
        metric="source_accuracy",
        value=value,
        ci_low=value - 0.1,
        ci_high=value + 0.1,
        unit="share of samples, chance 0.25",
        artifact=run.arrays(cell_id, "scores", **{name: np.asarray(word) for name, word in told.items()}),
    )


def test_whose_a_sample_is_stands_beside_chance_with_an_interval_over_seeds(run_maker, add_membership):
    """Means of .4, .5, .6: t of two degrees of freedom has 4.303 at 97.5 %."""
    add_membership(run_maker, "none", **normal(1.0))
    for seed, value in enumerate([0.4, 0.5, 0.6]):
        source_row(run_maker, "none", value, seed=seed)
        source_row(run_maker, "none", 0.9, seed=seed, attack="coin", role="null")
    half = 4.303 * 0.1 / 3**0.5
    words = cells(run_maker.write())["none", "NO CLAIM", WHOSE]
    assert words == f"correct 0.500 [{0.5 - half:.3f}, {0.5 + half:.3f}], chance 0.25; source"


def test_of_one_seed_the_interval_is_its_runs_and_marked(run_maker, add_membership):
    add_membership(run_maker, "none", **normal(1.0))
    source_row(run_maker, "none", 0.5)
    assert cells(run_maker.write())["none", "NO CLAIM", WHOSE].startswith("correct 0.500 [0.400, 0.600]†, ")


@pytest.mark.parametrize(("adjacency", "beyond"), [("add_remove", False), ("replace_one", True)])
def test_a_claim_of_other_neighbours_states_nothing_of_whose_a_sample_is(
    adjacency, beyond, run_maker, add_membership, make_claim
):
    run_maker.sign("dp_sgd", make_claim(unit=Unit.SAMPLE, observer=UPLOADS))
    add_membership(run_maker, "dp_sgd", **normal(1.0))
    source_row(run_maker, "dp_sgd", 0.5, adjacency=adjacency)
    (words,) = [text for (_, _, header), text in cells(run_maker.write()).items() if header == WHOSE]
    assert words.endswith("OUT OF SCOPE") is beyond


def test_an_attack_on_sources_that_was_left_out_states_so(run_maker, add_membership):
    for defense in ("none", "dp_sgd"):
        add_membership(run_maker, defense, **normal(1.0))
    source_row(run_maker, "none", 0.5)
    run_maker.row(defense="dp_sgd", attack="source", observer="uploads", metric="", status="skipped", reason="masked")
    assert cells(run_maker.write())["dp_sgd", "NO CLAIM", WHOSE] == "skipped"


def test_adversaries_who_are_given_more_stand_by_themselves(run_maker, add_membership):
    add_membership(run_maker, "dp_sgd", "cosine", **normal(0.5))
    add_membership(run_maker, "dp_sgd", "ratio", adversary="worst_case", **normal(3.0))
    add_membership(run_maker, "dp_sgd", "ascent", adversary="active", **normal(1.5))
    words = cells(run_maker.write())["dp_sgd", "NO CLAIM", SERVER]
    assert [
        part.rpartition("; ")[2] for part in words.replace("; WORST", "|WORST").replace("; ACT", "|ACT").split("|")
    ] == [
        "cosine",
        "ratio",
        "ascent",
    ]
    assert words.startswith("AUC 0.")
    assert "; WORST-CASE ADVERSARY: AUC 0.9" in words
    assert "; ACTIVE SERVER: AUC 0." in words


def test_a_non_member_who_is_asked_about_at_ten_clients_counts_once(run_maker, add_membership):
    """20 of them allow FPR 50 %, and no 200 scores FPR 5 %."""
    who = np.repeat(np.arange(20), 10)
    add_membership(run_maker, "none", **normal(1.0, 200), member_candidates=who, nonmember_candidates=100 + who)
    assert "at FPR 50 % (point estimate)" in cells(run_maker.write())["none", "NO CLAIM", SERVER]


def test_each_file_of_scores_is_opened_once(run_maker, add_membership, monkeypatch):
    for seed in range(3):
        add_membership(run_maker, "none", "loss", seed=seed, **normal(0.5, seed=seed))
    opened, archive = [], zipfile.ZipFile

    def counted(file):
        opened.append(str(file))
        return archive(file)

    folder = run_maker.write()
    monkeypatch.setattr(zipfile, "ZipFile", counted)
    (found,) = memberships(folder)
    assert len(found.sides.member) == 180
    assert len(opened) == len(set(opened)) == 3
