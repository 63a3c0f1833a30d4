"""Claims of layers: tried on crafted reports where their law is known, out of scope for canaries of whole releases."""

import pytest
from fedassay.suites.results.outcome import INCONCLUSIVE


@pytest.fixture
def audited(assay, suite_file):
    """(defenses' tables, replicas) -> the run and its audits' rows."""

    def go(defenses, *, replicas):
        tables = f"{defenses}\n[audit]\nreplicas = {replicas}\nbatch = 2000\n"
        run = assay(suite_file(text=tables, clients=2, samples=60, alpha=0.05))
        return run, [row for row in run.records if row.role == "audit"]

    return go


@pytest.mark.long
def test_claims_of_one_layer_are_out_of_scope_for_canaries_and_tried_where_the_law_is_known(audited):
    """FedRE's noise moves with its scores, so that it publishes no law; what is out of scope takes no part of alpha."""
    tables = "[defenses.fedre]\nepsilon = 1.0\nregion = [0, 0, 2, 2]\n[defenses.uniform_layers]\nepsilon = 1.0\n"
    run, rows = audited(tables, replicas=60)
    found = {(row.defense, row.verdict) for row in rows}
    assert [row.verdict for row in rows if row.defense == "fedre"].count("OUT_OF_SCOPE") == 2
    assert {verdict for name, verdict in found if name == "uniform_layers"} <= {"NOT_REFUTED", "UNDERPOWERED"}
    reasons = [row.reason for row in rows if row.verdict == "OUT_OF_SCOPE"]
    assert all("none covers layer output." in reason for reason in reasons)
    assert {row.status for row in run.records} <= {"ok", "skipped"}
    assert run.verdict.exit_code == INCONCLUSIVE
    assert {round(row.ci_level, 6) for row in rows if row.ci_level is not None} == {1 - 0.05 / 4}


@pytest.mark.long
def test_fedres_published_layers_fall_and_its_corrected_ones_stand(audited):
    """Nearly all of epsilon 4 goes to one layer; by equation 9, two layers 2C apart, it is worth over 8."""
    fields = "part = 'fedre'\nepsilon = 4.0\ndelta = 0.01\nscores = [1.0, 1000.0]\n"
    tables = f"[defenses.right]\n{fields}\n[defenses.paper]\nvariant = 'as_published'\n{fields}"
    _, rows = audited(tables, replicas=16_000)
    found = {name: [row.verdict for row in rows if row.defense == name] for name in ("paper", "right")}
    assert found == {"paper": ["REFUTED", "REFUTED", "UNDERPOWERED"], "right": ["NOT_REFUTED"] * 3}
    # The layer without a budget to speak of: so small a claim is out of reach of 16,000 runs.
    assert rows[-1 if rows[-1].defense == "paper" else 2].reason.startswith("weak test: the minimum detectable epsilon")
