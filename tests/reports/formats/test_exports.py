"""Claims in a registry's fields, and all records as CSV: every value is one of the run."""

import csv
import hashlib
import io
import json

import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS, Observer
from fedassay.reports.formats.exports import NOT_STATED, deployments, quiet, spreadsheet
from fedassay.reports.reading.claims import left_unprotected
from fedassay.reports.reading.run_folder import RunFolder
from hypothesis import given
from hypothesis import strategies as st

PLAN = {
    "rounds": 30,
    "cohort": {"poisson": 0.25},
    "lot": {"fixed_size": 8},
    "algorithm": {"name": "fedavg", "learning_rate": 0.1, "local_steps": 5},
}


def entries(*folders):
    document = json.loads(deployments(folders))
    assert document["schema"] == "deployment-1"
    return document["claims"]


@pytest.fixture
def export(run_maker, make_claim):
    """(plan of the federation, change by the defense, claim's changes) -> the entry of the only claim."""

    def one(plan, change=None, **changes):
        run_maker.manifest["suite"] |= {"federations": {"main": plan}, "defenses": {"dp": {"plan": change}}}
        run_maker.sign("dp", make_claim(**changes))
        (entry,) = entries(run_maker.write())
        return entry

    return one


def test_what_the_plan_states_is_reported(export):
    entry = export(PLAN)
    assert entry["composition"] == {
        "rounds_claimed": 20,
        "rounds_run": 30,
        "local_steps": 5,
        "hyper_parameter_tuning_included": "no",
    }
    assert entry["sampling"] == {
        "clients": "each with probability 0.25, independently",
        "records": "8 at a time, drawn uniformly without replacement",
        "accountant_assumes": "every client, every round",
    }
    assert entry["setting"] == {"data": "horizontal", "participants": NOT_STATED}


def test_a_vertical_federation_is_called_one_with_its_epochs(run_maker, make_claim):
    run_maker.manifest["suite"] = {"name": "quick", "vertical": {"main": {"columns": 2, "epochs": 4}}}
    run_maker.sign("dp", make_claim())
    (entry,) = entries(run_maker.write())
    assert entry["setting"]["data"] == "vertical"
    assert entry["composition"]["rounds_run"] == 4
    assert entry["sampling"]["clients"] == NOT_STATED


def test_what_the_claim_states_is_reported_and_epsilon_never_stands_alone(export):
    loss = export(PLAN, mu=0.925)["privacy_loss"]
    assert (loss["epsilon"], loss["delta"], loss["unit"], loss["adjacency"]) == (4.0, 1e-5, "client", "add_remove")
    assert (loss["observer"], loss["dp_model"], loss["curve"]["mu"]) == ("global_models", "central", 0.925)
    assert loss["accountant"] == "gdp 1"


@pytest.mark.parametrize(
    ("observer", "server", "clients", "channel"),
    [
        (FINAL_MODEL, "trusted:", "trusted:", "trusted:"),
        (GLOBAL_MODELS, "trusted:", "not trusted:", "trusted:"),
        (AGGREGATE, "not trusted with the sum;", "not trusted:", "trusted:"),
        (
            Observer("aggregate", sees_masked_words=True),
            "not trusted with the sum;",
            "not trusted:",
            "trusted but with",
        ),
        (SHUFFLED, "not trusted with shuffled reports;", "not trusted:", "trusted:"),
        (UPLOADS, "not trusted:", "not trusted:", "not trusted:"),
    ],
)
def test_an_observer_that_sees_no_more_than_the_observer_need_not_be_trusted(
    export, observer, server, clients, channel
):
    trust = export(PLAN, observer=observer)["trust"]
    assert trust["as_signed"] == "the server is trusted"
    for party, words in (("server", server), ("clients", clients), ("channel", channel)):
        assert trust[party].startswith(words)
    assert trust["collusion_threshold"] == NOT_STATED


@pytest.mark.parametrize(("verdict", "marked"), [("REFUTED", True), ("NOT_REFUTED", False)])
def test_a_refuted_claim_never_reads_as_one_that_holds(run_maker, make_claim, verdict, marked):
    claim = run_maker.sign("dp", make_claim(observer=UPLOADS))
    run_maker.verdict_row(claim, defense="dp", attack="canary", verdict=verdict, value=1.0)
    (entry,) = entries(run_maker.write())
    for party in ("server", "clients", "channel"):
        words = entry["trust"][party]
        assert "the claim is stated against" in words
        assert words.endswith("(claim refuted by this run)") == marked
    assert "the claim holds" not in str(entry)


def test_runs_of_one_plan_differ_in_the_digest_of_their_results(run_maker, make_claim):
    run_maker.sign("dp", make_claim())
    run_maker.row(value=0.5)
    folder = run_maker.write()
    (entry,) = entries(folder)
    assert entry["run_id"] == folder.manifest.run_id
    assert entry["results_sha256"] == hashlib.sha256((folder.path / "results.jsonl").read_bytes()).hexdigest()
    (folder.path / "results.jsonl").unlink()
    (entry,) = entries(folder)
    assert entry["results_sha256"] == NOT_STATED


def test_what_the_defense_changes_of_the_plan_counts(export):
    entry = export(PLAN, {"cohort": "full", "lot": None, "algorithm": {"name": "fedsgd", "learning_rate": 1.0}})
    assert entry["sampling"]["clients"] == "all, every time"
    assert entry["sampling"]["records"].startswith("8 at a time")
    assert entry["composition"]["local_steps"] == 1


def test_a_manifest_that_states_nothing_leaves_the_plan_not_stated(export):
    entry = export({})
    assert entry["composition"]["rounds_run"] == entry["composition"]["local_steps"] == NOT_STATED
    assert entry["sampling"]["clients"] == entry["sampling"]["records"] == NOT_STATED
    assert entry["setting"]["data"] == NOT_STATED


def test_what_a_claim_by_its_own_terms_leaves_open_is_listed(make_claim):
    assert left_unprotected(make_claim(part="layer fc", subjects="users of budget 1"), 30) == [
        "against the server that observes only the aggregate",
        "against the analyser that observes shuffled reports",
        "against the server that observes individual updates and who takes part",
        "against an adversary who also observes which clients take part in a round",
        "several clients at once",
        "more than 20 of the 30 rounds",
        "everything except layer fc",
        "anyone except users of budget 1",
    ]


def test_a_claim_against_an_observer_that_sees_all_names_no_stronger_observer(make_claim):
    assert left_unprotected(make_claim(observer=UPLOADS), 20)[0] == "several clients at once"
    assert "against an adversary who also observes the masked words" in left_unprotected(make_claim(observer=AGGREGATE))


def test_audits_stand_beside_the_claim_they_judge(run_maker, make_claim):
    signed = run_maker.sign("dp", make_claim())
    run_maker.sign("twin", make_claim(), control=True)
    run_maker.verdict_row(
        signed,
        attack="likelihood_ratio",
        defense="dp",
        value=0.9,
        ci_level=0.99,
        ceiling=4.5,
        n=500,
        verdict="NOT_REFUTED",
    )
    dp, twin = entries(run_maker.write())
    assert [audit["verdict"] for audit in dp["audits"]] == ["NOT_REFUTED"]
    assert dp["audits"][0]["epsilon_at_least"] == 0.9
    assert (twin["control"], twin["audits"]) == (True, [])


def test_a_claim_of_which_only_numbers_are_known_states_so(run_maker):
    run_maker.sign("dp", Claim.stated(epsilon=1.0))
    (entry,) = entries(run_maker.write())
    assert entry["trust"]["as_signed"] == entry["sampling"]["accountant_assumes"] == NOT_STATED


@pytest.mark.simulations
def test_the_claims_of_a_real_run_are_exported_whole(finished):
    (entry,) = entries(RunFolder.read(finished.folder))
    assert entry["statement"].startswith("eps 4, delta 1e-5, one report (replace-one), adversary: the server")
    assert entry["composition"] == {
        "rounds_claimed": 2,
        "rounds_run": 2,
        "local_steps": 1,
        "hyper_parameter_tuning_included": "no",
    }
    assert entry["sampling"]["clients"] == "all, every time"
    assert entry["audits"][0]["verdict"] == "NOT_REFUTED"


def read(text):
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_every_record_is_a_row_in_the_order_of_the_file(quick_folder):
    rows = read(spreadsheet([quick_folder]))
    assert [(row["cell_id"], row["metric"], row["record"]) for row in rows] == [
        (record.cell_id, record.metric, "" if record.record is None else str(record.record))
        for record in quick_folder.records
    ]
    assert {row["run"] for row in rows} == {"2026-01-05T09-14-02Z_quick_3f9a"}


def test_numbers_come_back_to_the_last_digit_and_nothing_is_no_zero(run_maker):
    run_maker.row(value=-0.1 - 0.2, seed=0, control=True)
    run_maker.row(value=None, seed=1, status="failed", reason="why")
    one, other = read(spreadsheet([run_maker.write()]))
    assert float(one["value"]) == -0.1 - 0.2
    assert one["control"] == "true"
    assert (other["value"], other["ci_low"], other["reason"]) == ("", "", "why")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", " =1+1", "＝1", '=HYPERLINK("x")'])
def test_a_text_that_would_be_calculated_is_quoted(run_maker, text):
    run_maker.row(defense=text, value=-1.0)
    (row,) = read(spreadsheet([run_maker.write()]))
    assert row["defense"] == f"'{text}"
    assert row["value"] == "-1.0"


@given(st.text())
def test_no_text_begins_a_formula(text):
    assert quiet(text).lstrip()[:1] not in tuple("=+-@")
    assert quiet(text).removeprefix("'") == text.removeprefix("'")


@pytest.mark.parametrize("text", ["a,b", 'a"b', "<script>", "\"&'", "ü", ";"])
def test_any_name_comes_back_as_it_was(run_maker, text):
    run_maker.row(defense=text, attack=text, reason=text, value=0.5)
    run_maker.row(value=0.25)
    first, second = read(spreadsheet([run_maker.write()]))
    assert (first["defense"], first["attack"], first["reason"]) == (text, text, text)
    assert second["value"] == "0.25"
