"""One verdict line, one exit code, and a test report, that say the same in every case."""

import itertools
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import xmlschema
from fedassay.audit.curve import ProfileCurve
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.reports.regression.baseline import Baseline
from fedassay.reports.regression.ci_files import junit, step_summary
from fedassay.reports.regression.gated_run import accept, judge_folder
from fedassay.suites.config.source import ConfigError
from fedassay.suites.results.outcome import FAIL, INCOMPLETE, INCONCLUSIVE, OK, WORDS
from run_files import finish

SCHEMA = xmlschema.XMLSchema(str(Path(__file__).with_name("junit.xsd")))
CODES = {"fail": FAIL, "incomplete": INCOMPLETE, "inconclusive": INCONCLUSIVE}
FAIL_ONS = [words for k in (1, 2, 3) for words in itertools.combinations(CODES, k)]


def read(run, **planned):
    return RunFolder.read(run.write(**planned))


TROUBLES = {
    "fine": (lambda run: run, OK),
    "worse": (lambda run: run.cell([0.9 + 0.001 * n for n in range(8)], attack="lira"), FAIL),
    "refuted": (lambda run: run.audit("REFUTED", defense="bold"), FAIL),
    "underpowered": (lambda run: run.audit("UNDERPOWERED", defense="shy"), INCONCLUSIVE),
    "uncertain": (lambda run: run.cell([0.6 + 0.2 * (-1) ** n for n in range(8)], attack="rmia"), INCONCLUSIVE),
    "blind": (lambda run: run.audit("NOT_REFUTED", defense="control", control=True), INCOMPLETE),
    "failed": (lambda run: run.row(attack="ascent", status="failed", metric="none", reason="<&>\x0b]]>"), INCOMPLETE),
    "new": (lambda run: run.cell([0.5, 0.6], attack="fresh"), INCOMPLETE),
    "instrument": (lambda run: run.manifest["suite"]["federations"]["main"].update(rounds=40), INCOMPLETE),
}
BASE = {"lira": [0.6 + 0.001 * n for n in range(8)], "rmia": [0.6] * 8}


@pytest.fixture
def pair(craft, scatter):
    """(names of troubles) -> the run's folder and its baseline's."""

    def make(*names):
        base, run = craft("base").cell(scatter()), craft("new").cell(scatter())
        for name in names:
            TROUBLES[name][0](run)
        for attack, values in BASE.items():
            if any(line["attack"] == attack for line in run.lines):
                base.cell(values, attack=attack)
        return read(run), base.write()

    return make


MIXED = [("worse", "uncertain"), ("refuted", "blind"), ("underpowered", "new"), tuple(TROUBLES)]


@pytest.mark.parametrize("names", [*((name,) for name in TROUBLES), *MIXED])
def test_line_code_and_test_report_agree_whatever_is_failed_on(pair, names):
    folder, base = pair(*names)
    asked = {TROUBLES[name][1] for name in names}
    for fail_on in FAIL_ONS:
        judged = judge_folder(folder, base, fail_on=fail_on)
        counted = asked & {CODES[word] for word in fail_on}
        expected = next((code for code in (INCOMPLETE, FAIL, INCONCLUSIVE) if code in counted), OK)
        assert judged.outcome.exit_code == expected
        assert judged.outcome.verdict_line.startswith(f"{WORDS[expected]}: ")
        for code in (INCOMPLETE, FAIL, INCONCLUSIVE):
            let_be = f"{WORDS[code]}: " in judged.outcome.verdict_line.partition("(ignored by fail_on: ")[2]
            assert let_be == (code in asked - counted)
        text = junit(judged)
        SCHEMA.validate(text)
        cases = ElementTree.fromstring(text.encode())
        assert bool(cases.findall(".//failure")) == (expected != OK)
        assert sum(int(suite.get("failures")) for suite in cases) == len(cases.findall(".//failure"))
        assert sum(int(suite.get("tests")) for suite in cases) == len(cases.findall(".//testcase"))
        assert f"(exit code {expected})" in step_summary(judged)
        if expected == OK:
            judged.outcome.raise_for_status()
        else:
            with pytest.raises(RuntimeError, match=f"^{WORDS[expected]}: "):
                judged.outcome.raise_for_status()


def test_a_failure_names_cell_metric_baseline_value_interval_and_the_command(craft):
    base = craft("base").cell([0.50, 0.51, 0.52, 0.53, 0.54, 0.55, 0.56, 0.57])
    run = craft("new").cell([0.60, 0.62, 0.63, 0.63, 0.64, 0.66, 0.66, 0.68])
    judged = judge_folder(read(run), base.write())
    (worse, again) = judged.outcome.details
    assert worse == (
        "worse  main/mine/loss (uploads) AUC (↑ leaks more): 0.535 in the baseline, 0.640 now, "
        "worse by 0.1050 [0.1014, 0.1086] over 8 seeds, p 8e-11 within its family of tests, margin 0.05"
    )
    assert again == "again  fedassay run s.toml"
    with pytest.raises(RuntimeError) as error:
        judged.outcome.raise_for_status()
    assert str(error.value) == "\n".join([judged.outcome.verdict_line, worse, again])


def test_every_row_that_keeps_a_run_from_being_fine_is_reported_with_its_reason(craft):
    run = craft("new").audit("REFUTED", defense="bold").audit("UNDERPOWERED", defense="shy")
    run.audit("NOT_REFUTED", defense="broken", control=True).audit("NOT_REFUTED")
    run.row(defense="bold", attack="ascent", seed=3, status="failed", metric="none", reason="ValueError: no")
    says = "eps 4, delta 1e-5, one client (add/remove), adversary: other clients (every round's model)"
    assert list(judge_folder(read(run)).outcome.details) == [
        f"claim  main/bold: {says}: REFUTED: eps >= 0.70",
        "again  fedassay run s.toml",
        f"claim  main/broken: {says}: a control that should be REFUTED is NOT REFUTED",
        "failed main/bold: ascent seed 3: FAILED: ValueError: no",
        f"claim  main/shy: {says}: UNDERPOWERED: eps >= 0.70",
    ]


def test_a_claim_that_nothing_judged_is_skipped_not_passed(craft):
    run = craft("new").audit("NOT_REFUTED")
    run.claims.append(run.claims[0] | {"defense": "other"})
    run.row(
        defense="third", role="audit", attack="canary", metric="none", status="skipped", reason="no canary", seed=None
    )
    text = junit(judge_folder(read(run)))
    SCHEMA.validate(text)
    cases = {
        case.get("name"): [child.tag for child in case]
        for case in ElementTree.fromstring(text.encode()).iter("testcase")
    }
    says = "eps 4, delta 1e-5, one client (add/remove), adversary: other clients (every round's model)"
    assert cases == {
        "verdict": [],
        f"mine: {says} [likelihood_ratio]": [],
        "third: states no claim [canary]": ["skipped"],
        f"other: {says}": ["skipped"],
    }


def test_a_run_against_itself_passes_and_the_order_of_its_rows_does_not_count(craft, scatter):
    base = craft("base").cell(scatter()).cell(scatter(1), attack="lira")
    run = craft("new").cell(scatter()).cell(scatter(1), attack="lira")
    run.lines.reverse()
    judged = judge_folder(read(run), base.write())
    assert (judged.outcome.exit_code, judged.outcome.details) == (OK, ())
    assert judge_folder(read(run), run.path).outcome.exit_code == OK
    assert judged.comparison.correlation == pytest.approx(1)


def test_each_seed_is_paired_with_itself(craft):
    # The same eight values the other way round: sorted or paired by place they would not differ at all.
    values = [0.5 + 0.02 * seed for seed in range(8)]
    run = craft("new").cell(reversed(values))
    judged = judge_folder(read(run), craft("base").cell(values).write())
    (cell,) = judged.comparison.cells
    # Differences .14, .10, ..., -.14: mean 0, standard error .0980 / sqrt(8) = .0346, and t of 7 at .95 is 1.895.
    assert (cell.change.low, cell.change.high) == (pytest.approx(-0.0656, abs=1e-4), pytest.approx(0.0656, abs=1e-4))
    assert judged.comparison.correlation == pytest.approx(-1)


CHANGES = {
    "seeds": (lambda run: run.manifest.update(seeds=[0, 1]), "seeds 0, 1, 2, 3, 4, 5, 6, 7 then, 0, 1 now"),
    "data": (
        lambda run: run.manifest.update(data={"digits": "1" * 64}),
        f"data digits {'0' * 64} then, {'1' * 64} now",
    ),
    "federation": (lambda run: run.manifest["suite"]["federations"]["main"].update(lot=3), "lot nothing then, 3 now"),
    "attack": (
        lambda run: run.manifest["suite"]["attacks"]["loss"].update(count=9),
        "attack loss: count 8 then, 9 now",
    ),
    "suite": (lambda run: run.manifest["suite"].update(name="t"), "suite s then, t now"),
    "package": (lambda run: run.manifest["versions"].update(fedassay="0.2.0"), "fedassay 0.1.0 then, 0.2.0 now"),
    "version": (
        lambda run: [line.update(attack_version="2") for line in run.lines if line["attack"] == "loss"],
        "attack loss: version 1 then, 2 now",
    ),
    "claim": (
        lambda run: (run.claims.clear(), run.lines.pop(), run.audit("NOT_REFUTED", epsilon=8.0)),
        "defense mine claims eps 4, delta 1e-5, one client (add/remove), adversary: other clients (every round's model)"
        " then, eps 8, delta 1e-5, one client (add/remove), adversary: other clients (every round's model) now",
    ),
    "rounds": (lambda run: run.resign(rounds=5), "(every round's model): rounds 20 then, 5 now"),
    "no curve": (lambda run: run.resign(curve=None), "(every round's model): curve mu 0.925 then, none now"),
    "another curve": (
        lambda run: run.resign(curve=ProfileCurve((0.0, 1.0), (0.5, 0.25), (0.5, 0.25))),
        "curve mu 0.925 then, FNR 0.723 at FPR 0.01; FNR 0.478 at FPR 0.1; FNR 0.092 at FPR 0.5 now",
    ),
    "trust": (lambda run: run.resign(trust="all are trusted"), "trust the server is trusted then, all are trusted now"),
    "on trial": (lambda run: run.claims[0].update(variant="as_published"), "standing honest then, as published now"),
    "audit": (lambda run: run.manifest["suite"]["audit"].update(replicas=80), "audit: replicas 500 then, 80 now"),
    "alpha": (lambda run: run.manifest["suite"].update(alpha=1e-6), "audit: alpha 0.01 then, 1e-06 now"),
    "no audit table": (lambda run: run.manifest["suite"].pop("audit"), "audit: replicas 500 then, nothing now"),
    "own replicas": (
        lambda run: run.manifest["suite"]["defenses"]["mine"].update(replicas=80),
        "defense mine: replicas nothing then, 80 now",
    ),
    "no claim": (lambda run: (run.claims.clear(), run.lines.pop()), "then, none now"),
    "no audit": (lambda run: run.lines.pop(), "defense mine audited for eps 4"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_measures_may_not_change_nor_a_promise_be_lowered_unless_accepted(craft, scatter, name, tmp_path):
    change, says = CHANGES[name]
    base = craft("base").cell(scatter()).audit("NOT_REFUTED")
    run = craft("new").cell(scatter()).audit("NOT_REFUTED")
    change(run)
    kept = accept(read(base), tmp_path / "main")
    judged = judge_folder(read(run), kept)
    assert judged.outcome.exit_code == INCOMPLETE
    assert any(line.startswith("change ") and says in line for line in judged.outcome.details)
    command = f"fedassay gate {tmp_path / 'new'} --baseline {kept} --accept"
    assert f"accept {command}" in judged.outcome.details
    accept(read(run), kept)
    assert judge_folder(read(run), kept).outcome.exit_code == OK


@pytest.mark.parametrize("verdict", ["REFUTED", "NOT_REFUTED"])
def test_what_breaks_a_claim_or_lets_a_control_pass_is_no_baseline(craft, scatter, verdict, tmp_path):
    run = craft("new").cell(scatter()).audit(verdict, control=verdict == "NOT_REFUTED")
    kept = accept(read(craft("base").cell(scatter()).audit("NOT_REFUTED")), tmp_path / "main")
    before = kept.read_bytes()
    says = "controls not refuted: mine" if verdict == "NOT_REFUTED" else "claims REFUTED: mine"
    with pytest.raises(ConfigError, match=f"cannot be a baseline: {says}"):
        accept(read(run), kept)
    assert kept.read_bytes() == before


def test_the_defense_itself_and_packages_may_change_and_are_reported(craft, scatter):
    base, run = craft("base").cell(scatter()), craft("new").cell(scatter())
    for line in run.lines:
        line["defense_version"] = "1+abc"
    run.manifest["suite"]["defenses"]["mine"]["epsilon"] = 5.0
    run.manifest["versions"]["torch"] = "2.16.0"
    judged = judge_folder(read(run), base.write())
    assert judged.outcome.exit_code == OK
    assert list(judged.outcome.details) == [
        "note   defense mine version 1 then, 1+abc now",
        "note   defense mine: epsilon 4.0 then, 5.0 now",
        "note   package torch 2.15.0 then, 2.16.0 now",
    ]


def test_only_cells_that_the_change_can_have_reached_share_alpha(craft, scatter):
    base, run, worse = craft("base"), craft("new"), [0.04 + 0.04 * (-1) ** seed for seed in range(8)]
    for number in range(24):
        base.cell(scatter(number), attack=f"a{number:02d}")
        run.cell(scatter(number) + (worse if number == 5 else 0), attack=f"a{number:02d}")
    folder = read(run)
    told_apart = judge_folder(folder, base.write())
    # Equal identities with other values tell nothing: all share alpha.
    assert told_apart.comparison.family == 24
    assert told_apart.outcome.exit_code == INCONCLUSIVE
    for line in run.lines:
        if line["attack"] == "a05":
            line["cell_id"] += "'"
    reached = judge_folder(read(run), base.write())
    assert [str(cell.key) for cell in reached.comparison.cells if cell.reached] == ["main/mine/a05 (uploads) auc"]
    assert reached.outcome.exit_code == FAIL
    before, after = (one.comparison.cells[5].change for one in (told_apart, reached))
    assert (after.p_family, before.p_family) == (after.p, pytest.approx(24 * after.p))
    assert "1 of 24 cells are tested and share alpha" in step_summary(reached)


def test_missing_and_new_cells_and_seeds_are_named(craft, scatter):
    base = craft("base").cell(scatter()).cell(scatter(1), attack="gone").cell(scatter(2)[:6], attack="grown")
    run = craft("new").cell(scatter()[:6]).cell(scatter(1), attack="came").cell(scatter(2), attack="grown")
    judged = judge_folder(read(run), base.write())
    assert judged.outcome.exit_code == INCOMPLETE
    assert list(judged.outcome.details[:4]) == [
        "lacks  main/mine/gone (uploads) auc",
        "lacks  main/mine/loss (uploads) auc seeds 6, 7",
        "new    main/mine/came (uploads) auc",
        "new    main/mine/grown (uploads) auc seeds 6, 7",
    ]
    assert {str(cell.key): cell.change.seeds for cell in judged.comparison.cells} == {
        "main/mine/loss (uploads) auc": 6,
        "main/mine/grown (uploads) auc": 6,
    }


def test_a_baseline_of_another_suite_has_nothing_in_common(craft, scatter):
    base, run = craft("base").cell(scatter(), federation="else"), craft("new").cell(scatter())
    base.manifest["suite"]["name"] = "other"
    judged = judge_folder(read(run), base.write())
    assert judged.outcome.exit_code == INCOMPLETE
    assert "no cell in common with the baseline base" in judged.outcome.verdict_line
    assert "suite other then, s now" in judged.outcome.verdict_line


def test_no_baseline_yet_is_incomplete_and_states_what_makes_it(craft, scatter, tmp_path):
    run = read(craft("new").cell(scatter()))
    judged = judge_folder(run, tmp_path / "main")
    assert judged.outcome.exit_code == INCOMPLETE
    assert (
        f"fedassay gate {run.path} --baseline {tmp_path / 'main.json'} --accept creates it"
        in judged.outcome.verdict_line
    )


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda run: run.write(planned=9), "1 cell missing"),
        (lambda run: (run.row(status="failed", metric="none"), run.write()), "1 cell FAILED"),
        (lambda run: (run.lines.clear(), run.write()), "the run holds no row"),
        (lambda run: (run.write() / "results.jsonl").open("a").write('{"torn'), "1 row that cannot be read"),
    ],
)
def test_a_run_with_holes_is_incomplete_and_never_becomes_a_baseline(craft, scatter, tmp_path, spoil, says):
    run = craft("new").cell(scatter())
    spoil(run)
    folder = RunFolder.read(run.path)
    assert judge_folder(folder).outcome.exit_code == INCOMPLETE
    with pytest.raises(ConfigError, match=f"cannot be a baseline: .*{says}"):
        accept(folder, tmp_path / "main")
    assert not (tmp_path / "main.json").exists()


def test_a_suite_states_what_is_minded_and_the_command_states_it_last(pair, tmp_path):
    folder, base = pair("worse")
    manifest = json.loads((folder.path / "manifest.json").read_text())
    manifest["suite"]["gate"] = {"margins": {"auc": 0.7}}
    (folder.path / "manifest.json").write_text(json.dumps(manifest))
    told = RunFolder.read(folder.path)
    unseen = judge_folder(told, base)
    assert unseen.outcome.exit_code == INCOMPLETE  # Whoever widens a margin in passing would let a worse defense pass.
    assert "margins: auc nothing then, 0.7 now" in str(unseen.comparison.obstacles)
    same = json.loads((base / "manifest.json").read_text())
    same["suite"]["gate"] = {"margins": {"auc": 0.7}}
    (base / "manifest.json").write_text(json.dumps(same))
    finish(base)
    finish(folder.path)
    told = RunFolder.read(folder.path)
    assert judge_folder(told, base).outcome.exit_code == OK
    assert judge_folder(told, base, margins={"auc": 0.2}).outcome.exit_code == FAIL
    assert judge_folder(told, base, margins={"psnr": 2.0}).outcome.exit_code == OK
    manifest["suite"]["gate"] = {"margins": {"auc": "much"}}
    (folder.path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match="margin of auc must be a number > 0, got 'much'"):
        judge_folder(RunFolder.read(folder.path), base)


@pytest.mark.parametrize("words", ["", "fial", "fail,none"])
def test_an_unknown_verdict_to_fail_on_is_refused(pair, words):
    folder, base = pair("fine")
    with pytest.raises(ConfigError, match="names an unknown verdict"):
        judge_folder(folder, base, fail_on=words.split(","))


def test_names_of_html_and_control_characters_stay_text(craft, scatter):
    name, base, run = "<script>|`x`\x00]]>", craft("base"), craft("new")
    base.cell([0.6] * 7 + [0.61], attack=name)
    run.cell([0.9] * 7 + [0.92], attack=name).audit("REFUTED", defense=name)
    judged = judge_folder(read(run), base.write())
    SCHEMA.validate(junit(judged))
    assert "<script>" not in step_summary(judged)


@pytest.mark.parametrize(
    ("finished", "stamp"),
    [
        ("2026-01-05T09:14:50Z", "2026-01-05T09:14:50"),
        ("2026-01-01T00:00:00+02:00", "2025-12-31T22:00:00"),
        ("2026-01-01 00:00:00", "2026-01-01T00:00:00"),
        ("2026-01-05T09:14:50.75", "2026-01-05T09:14:50"),
        ("soon", "2026-01-05T09:14:02"),
        ("0001-01-01T00:00:00+02:00", "2026-01-05T09:14:02"),
        (None, "2026-01-05T09:14:02"),
    ],
)
def test_a_time_that_a_hand_changed_is_reported_in_utc_or_left_to_the_start(craft, finished, stamp):
    run = craft("new").audit("NOT_REFUTED")
    run.manifest["finished"] = finished
    text = junit(judge_folder(read(run)))
    SCHEMA.validate(text)
    assert {suite.get("timestamp") for suite in ElementTree.fromstring(text.encode())} == {stamp}


def test_the_summary_puts_failures_first_and_is_cut_at_sixty_kibibytes(craft):
    base, run = craft("base"), craft("new")
    for number in range(600):
        base.cell([0.5 + 0.01 * n for n in range(4)], attack=f"attack_{number:03d}")
        rise = 0.3 if number == 599 else 0.0
        run.cell([0.5 + rise * (1 + 0.01 * n) + 0.01 * n for n in range(4)], attack=f"attack_{number:03d}")
    judged = judge_folder(read(run), base.write())
    assert judged.outcome.exit_code == FAIL
    text = step_summary(judged)
    assert len(text.encode()) <= 60 * 1024
    assert text.endswith("prints everything.*\n")
    assert text.index("attack_599") < text.index("attack_000")
    table = [line for line in text.splitlines() if line.startswith("| main")]
    assert table[0].endswith("| FAIL |")
    assert Baseline.of(judged.folder).cells[599].attack == "attack_599"
