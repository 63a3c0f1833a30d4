import subprocess
import sys

import pytest
from fedassay.audit.finite import finite_result, limit_of
from fedassay.reports.formats.page import html
from fedassay.reports.formats.terminal import claim_lines, tables
from fedassay.reports.reading.claims import claim_rows
from fedassay.reports.tables.printed import claim_table
from fedassay.reports.tables.summary import claims_note

AUDIT = {"role": "audit", "attack": "canary", "metric": "epsilon_low", "seed": None, "n": 1000}
CLAIM = "eps 4, delta 1e-5, one client (add/remove), adversary: other clients (every round's model)"


def test_a_claim_that_stands_and_a_control_that_falls_read_as_promised(run_maker, make_claim):
    claim = make_claim(mu=0.925)
    run_maker.sign("dp_fedavg", claim)
    run_maker.sign("noise_halved", claim, control=True)
    common = AUDIT | {"claim_id": claim.claim_id, "route": "curve"}
    stands = {"value": 0.9, "ceiling": 4.97, "detectable": 6.1, "verdict": "NOT_REFUTED", "reason": "at alpha .002"}
    run_maker.row(**common, **stands, defense="dp_fedavg")
    scores = run_maker.arrays("c", "scores", fpr_high=0.0207, fnr_high=0.035)
    run_maker.row(**common, defense="noise_halved", value=2.2, ceiling=4.97, verdict="REFUTED", artifact=scores)
    assert claim_lines(run_maker.write()) == [
        f"claim  dp_fedavg     {CLAIM}: eps >= 0.9, max certifiable 4.97, min detectable 6.1, "
        "by the stated trade-off curve: NOT REFUTED",
        f"claim  noise_halved  {CLAIM}: eps >= 2.2, max certifiable 4.97, "
        "under the stated trade-off curve (FPR <= .021, FNR <= .035): REFUTED (control, as intended)",
    ]


def test_the_table_of_attacks_holds_the_first_metric_and_lpips_where_it_was_measured(run_maker):
    common = {"defense": "none", "attack": "dlg", "scope": "record", "direction": "higher_leaks"}
    run_maker.row(**common, metric="psnr", value=20.0)
    run_maker.row(**common, metric="ssim", value=0.5)
    assert [line.split()[1] for line in tables(run_maker.write()) if line.startswith("dlg")] == ["PSNR,"]
    run_maker.row(**common | {"direction": "lower_leaks"}, metric="lpips", value=0.25)
    assert [line.split()[1] for line in tables(run_maker.write()) if line.startswith("dlg")] == ["PSNR,", "LPIPS"]


def test_a_claim_names_the_model_that_was_audited_where_the_federation_trains_another(run_maker, make_claim):
    claim = run_maker.sign("dp_fedavg", make_claim())
    run_maker.row(role="utility", attack="training", metric="accuracy", value=0.5, model="resnet", defense="dp_fedavg")
    row = AUDIT | {"claim_id": claim.claim_id, "route": "eps_low", "verdict": "NOT_REFUTED", "model": "logistic"}
    run_maker.row(**row, defense="dp_fedavg", value=0.5, ceiling=4.9)
    folder = run_maker.write()
    (line,) = claim_lines(folder)
    assert ", audited on digits with logistic, not resnet: eps >= 0.5" in line
    assert "The claims on main were audited on digits with logistic, not resnet." in claims_note(claim_rows(folder))


def test_the_line_of_a_claim_counts_its_checks_and_names_failed_ones(run_maker, make_claim):
    claim = run_maker.sign("dp_fedavg", make_claim())
    row = AUDIT | {"claim_id": claim.claim_id, "defense": "dp_fedavg", "cell_id": "a"}
    run_maker.row(**row, value=0.5, ceiling=4.9, route="eps_low", verdict="NOT_REFUTED")
    check = row | {"role": "check", "attack": "replay"}
    broken = "sensitivity: moves 10; in `report`: no clip (a row of 10 clip norms)"
    run_maker.row(**check | {"metric": "check_sensitivity"}, value=10.0, verdict="FAILED", reason=broken)
    run_maker.row(**check | {"metric": "check_noise_present"}, value=1.0, verdict="PASSED", reason="all of it")
    run_maker.row(**check | {"metric": "check_noise_scale"}, status="skipped", reason="no law")
    folder = run_maker.write()
    (line,) = claim_lines(folder)
    words = "1 implementation check failed (sensitivity: moves 10; in `report`: no clip), 1 passed, 1 not possible"
    assert line.endswith(f"by the bound on eps, {words}: NOT REFUTED")
    (claimed,) = claim_rows(folder)
    assert claimed.needs_attention
    assert claim_table([claimed]).rows[0][-1] == f"NOT REFUTED; {words}"
    assert f"<small>{words.replace('>', '&gt;')}</small>" in html(folder)


def test_the_line_of_a_control_stays_short_however_much_its_checks_found(run_maker, make_claim):
    claim = run_maker.sign("noise_halved", make_claim(), control=True)
    row = AUDIT | {"claim_id": claim.claim_id, "defense": "noise_halved", "control": True, "cell_id": "a"}
    run_maker.row(**row, value=2.2, ceiling=4.97, verdict="REFUTED", not_looked_at=["clients: " + 200 * "x"])
    for number in range(9):
        check = row | {"role": "check", "attack": "replay", "metric": f"check_{number}", "verdict": "FAILED"}
        run_maker.row(**check, value=10.0, reason=f"check {number}: {90 * 'y'}")
    (line,) = claim_lines(run_maker.write())
    assert "9 implementation checks failed: REFUTED (control, as intended)" in line
    assert len(line) <= 300


def test_the_line_of_a_claim_says_for_whom_alone_it_holds(run_maker, make_claim):
    claim = run_maker.sign("dp_fedavg", make_claim())
    limit = limit_of([finite_result(["NaN"], ["NaN makes the release no number"], whom="clients")])
    row = AUDIT | {"claim_id": claim.claim_id, "route": "eps_low", "verdict": "NOT_REFUTED", "reason": "at alpha 0.05"}
    run_maker.row(**row, limit=limit, defense="dp_fedavg", value=0.5, ceiling=4.9)
    (line,) = claim_lines(run_maker.write())
    words = "NaN makes the release no number: the claim holds for clients that cannot cause such values"
    assert line.endswith(f"NOT REFUTED; {words}")


@pytest.mark.simulations
def test_printing_lines_loads_no_drawing_and_no_frame():
    code = "import sys, fedassay.reports.formats.terminal; print([m for m in {} if m in sys.modules])"
    heavy = ["matplotlib", "jinja2", "pandas", "torch"]
    done = subprocess.run([sys.executable, "-c", code.format(heavy)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
