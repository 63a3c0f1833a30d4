"""Files of scores: layouts, kinds of files, directions and designs end in a right verdict or a clear error."""

import importlib.util
import json
import pickle
import re
import signal
import tracemalloc

import numpy as np
import pytest
from fedassay.audit.binomial import largest_certifiable_epsilon
from fedassay.audit.estimators.guess_odds import coin_runs, odds_low
from fedassay.audit.threshold import choosing
from fedassay.cli.score_files import ScoreColumns, read_scores

HAS_PARQUET = importlib.util.find_spec("pyarrow") is not None
KINDS = ("csv", "tsv", "parquet", "npy", "npz", "json")
CLAIM = ("--epsilon", 1, "--delta", 1e-5, "--unit", "sample", "--adjacency", "add_remove", "--observer", "final_model")
RUNS = ("--independent-runs",)


def shown(member, nonmember, layout):
    """Columns of a table by name; a wide one is padded with None."""
    if layout == "long":
        order = np.random.default_rng(9).permutation(len(member) + len(nonmember))
        inside = np.arange(len(order)) < len(member)
        return {"score": [*np.concatenate([member, nonmember])[order]], "is_member": [*inside[order]]}
    length = max(len(member), len(nonmember))
    pad = {name: [*side, *[None] * (length - len(side))] for name, side in (("m", member), ("n", nonmember))}
    return {"member": pad["m"], "nonmember": pad["n"]}


def write(path, table):
    """The table in the kind of file that the path's ending names; returns the options that it needs."""
    kind, rows = path.suffix[1:], list(zip(*table.values(), strict=True))
    kept = {name: np.array([value for value in column if value is not None]) for name, column in table.items()}
    plain = {name: [None if value is None else np.asarray(value).item() for value in table[name]] for name in table}
    if kind in ("csv", "tsv"):
        mark = "," if kind == "csv" else "\t"
        lines = [mark.join(table), *(mark.join("" if cell is None else str(cell) for cell in row) for row in rows)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    elif kind == "npz":
        np.savez(path, **kept)
    elif kind == "npy":
        np.save(path, np.array([[np.nan if cell is None else float(cell) for cell in row] for row in rows]))
        return ("--columns", ",".join(table))
    elif kind == "json":
        path.write_text(
            json.dumps({name: [v for v in plain[name] if v is not None] for name in plain}), encoding="utf-8"
        )
    else:
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table(plain), path)
    return ()


CASES = {
    # The scores' shift, how many there are, the options, the exit code, and what the output names.
    "right": (1.85, 1200, RUNS, 10, "REFUTED"),
    "true claim": (0.25, 200_000, RUNS, 0, "NOT REFUTED"),
    "true claim, few scores": (0.25, 3000, RUNS, 11, "about 32,869 counted runs per arm would be enough"),
    "wrong": (-1.85, 1200, RUNS, 2, "--lower-is-member"),
    "wrong, stated": (-1.85, 1200, (*RUNS, "--higher-is-member"), 2, "--lower-is-member"),
    "losses": (-1.85, 1200, (*RUNS, "--lower-is-member"), 10, "REFUTED"),
    "one run": (3.0, 1200, ("--one-run", "--higher-is-member"), 10, "REFUTED"),
    "one run, wrong": (-3.0, 1200, ("--one-run", "--higher-is-member"), 2, "--lower-is-member"),
    "one run, not stated": (3.0, 1200, ("--one-run",), 2, "--higher-is-member or --lower-is-member"),
    "too few": (3.0, 12, RUNS, 11, "UNDERPOWERED"),
    "one run, too few": (9.0, 4, ("--one-run", "--higher-is-member"), 11, "UNDERPOWERED"),
    "no design": (1.85, 1200, (), 2, "--independent-runs"),
}


@pytest.mark.parametrize("layout", ["long", "wide"])
def test_every_kind_of_file_holds_the_same_scores(tmp_path, layout):
    rng = np.random.default_rng(0)
    member, nonmember = rng.normal(size=60), rng.normal(size=50)
    for kind in KINDS:
        if kind == "parquet" and not HAS_PARQUET:
            continue
        path = tmp_path / f"scores.{kind}"
        more = write(path, shown(member, nonmember, layout))
        table = read_scores(path, ScoreColumns(unnamed=tuple(more[1].split(",")) if more else ()))
        # Versions of pandas differ in the last digit of a number that they read from text.
        for found, written in ((table.member, member), (table.nonmember, nonmember)):
            np.testing.assert_allclose(np.sort(found), np.sort(written), rtol=1e-14, atol=1e-15, err_msg=kind)


@pytest.mark.parametrize("case", CASES)
def test_no_file_ends_in_a_wrong_ok(say, tmp_path, case):
    shift, n, options, code, word = CASES[case]
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "s.npz", member=rng.normal(shift, 1, n), nonmember=rng.normal(0, 1, n))
    result = say("audit", "s.npz", *CLAIM, *options)
    assert result.exit_code == code, result.output
    assert word in (result.stderr if code == 2 else result.stdout), result.output
    assert code != 2 or (result.stderr.count("\n"), result.stdout.count("gate")) == (1, 0)


def test_other_names_of_columns_are_options(say, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "s.npz", loss=rng.normal(size=2000) - 3 * (np.arange(2000) < 1000), train=np.arange(2000) < 1000
    )
    words = ("--score", "loss", "--is-member", "train", "--lower-is-member")
    assert say("audit", "s.npz", *CLAIM, *RUNS, *words).exit_code == 10
    canaries = ("--score", "loss", "--one-run", "--included", "train", "--lower-is-member")
    split = say("audit", "s.npz", *CLAIM, *canaries)
    assert (split.exit_code, "which is a fixed split and not a fair coin" in split.stderr) == (2, True)
    coins = rng.random(2000) < 0.5
    np.savez(tmp_path / "s.npz", loss=rng.normal(size=2000) - 3 * coins, train=coins)
    assert say("audit", "s.npz", *CLAIM, *canaries).exit_code == 10


def test_columns_of_shape_n_1_are_columns(say, tmp_path):
    rng = np.random.default_rng(0)
    inside, runs = np.arange(2000) < 1000, np.arange(2000)
    table = {"score": rng.normal(size=2000) + 3 * inside, "is_member": inside, "run": runs}
    np.savez(tmp_path / "s.npz", **{name: values[:, None] for name, values in table.items()})
    assert say("audit", "s.npz", *CLAIM, *RUNS).exit_code == 10
    assert say("audit", "s.npz", *CLAIM, "--clusters", "run").exit_code == 10


def test_clusters_name_the_runs_of_the_scores(say, tmp_path):
    rng = np.random.default_rng(0)
    coins, runs = rng.random(3000) < 0.5, np.repeat(np.arange(600), 5)
    scores = rng.normal(0, 1, 600)[runs] + 9 * coins
    rows = [f"{score},{int(coin)},run {run}" for score, coin, run in zip(scores, coins, runs, strict=True)]
    (tmp_path / "c.csv").write_text("\n".join(["score,is_member,run", *rows]))
    result = say("audit", "c.csv", *CLAIM, "--clusters", "run")
    assert result.exit_code == 10
    assert "one score per cluster, drawn at random" in result.stdout
    result = say("audit", "c.csv", *CLAIM, "--clusters", "ran")
    assert (result.exit_code, "has no column ran (--clusters); it has: score, is_member, run" in result.stderr) == (
        2,
        True,
    )


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "score,is_member\n1,1\n2,yes\n", "holds scores of members only (is_member)"),
        (
            "a.csv",
            "score,is_member\n1,1\n,0\n",
            "score must have a score in every row up to its last one, got none in row 2",
        ),
        ("a.csv", "score,is_member\n1,1\n2,maybe\n", "is_member must be true or false (or 1 or 0)"),
        ("a.csv", "score,is_member\n1,1\n3,1\nnan,0\n", "score: a score must be finite, got NaN or infinity in row 3"),
        ("a.csv", "score,is_member\nNaN,1\n+Inf,0\n", "score: a score must be finite, got NaN or infinity in row 1"),
        ("a.csv", 'score,is_member\n\n1,1\n2,"0\n3,1\n', "a quote in line 4 is not closed"),
        ("a.csv", 'score,is_member\n\n1,1\n"2,0\n3,1\n', "got 1 in line 4, where a quote is opened that joins lines"),
        ("a.csv", 'score,is_member\n1,1\n"' + "2,0\n" * 40_000, "in the row that begins in line 3; perhaps a quote"),
        ("a.csv", "# of run 7\nscore,is_member\n1,1\n2,0\n", "in the first line, got a comment ('# of run 7')"),
        ("a.csv", "score,is_member\n1,1\n-inf,0\n", "score: a score must be finite, got NaN or infinity in row 2"),
        ("a.csv", "member,nonmember\n3,94,1,60\n2,32,3,37\n", "2 cells in every line, as its first line has, got 4 in"),
        ("a.csv", "score,is_member\n", "score must not be empty"),
        ("a.csv", "score,is_member\n1,1\ntwo,0\n", "score must hold numbers, got texts in at least half"),
        ("a.csv", "score,score,is_member\n1,1,1\n", "has 2 columns with the name score"),
        ("a.csv", "a,b\n1,2\n", "but it has: a, b"),
        ("a.csv", "member,nonmember\n1,\n2,\n", "nonmember must not be empty"),
        ("a.csv", "member,nonmember\n\xff,2\n", "a.csv must be a table in UTF-8"),
        ("a.tsv", "member,nonmember\n1,2\n", "name the file .csv (commas) or .tsv (tabs)"),
        ("a.json", "{", "cannot be read as JSON"),
        ("a.json", "[1, 2]", "must hold an object of lists, or a list of objects"),
        ("a.json", '{"member": [1, NaN], "nonmember": [0]}', "NaN is not a JSON number"),
        (
            "a.json",
            '{"member": [1, null, 2], "nonmember": [0]}',
            "member must have a score in every row up to its last one, got none in row 2",
        ),
        ("a.json", '{"member": ["one"], "nonmember": [0]}', "member must hold numbers"),
        ("a.json", '{"member": 1, "nonmember": [0]}', "member must be a list, got int"),
        ("a.json", '{"member": [true, false], "nonmember": [0]}', "member must be real numbers, got bool"),
        ("a.csv", "c," * 70_000 + "c\n", "must have at most 65536 columns, got 70001"),
        ("a.csv", "m" * 9000 + ",n\n1,2\n", "must have one column score and one column is_member"),
        ("a.json", '{"member": [1], "member": [2]}', "an object has one name twice"),
        ("a.json", '{"member": [9007199254740992, 9007199254740993], "nonmember": [0]}', "too large to tell apart"),
        ("a.npy", "no array", "a.npy is not an array as numpy saves it"),
        ("a.csv", "score;is_member\n1;1\n2;0\n", "columns separated by ',', got a first line with only one column"),
        ("a.csv", "score,is_member,member,nonmember\n1,1,2,3\n", "has scores in two layouts: state the columns"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_paragraph(say, tmp_path, name, text, words):
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    result = say("audit", name, *CLAIM, *RUNS)
    assert (result.exit_code, words in result.stderr, result.stderr.count("\n")) == (2, True, 1), result.output
    assert len(result.stderr) < 2100


def test_the_limit_counts_the_objects_of_a_json_file(say, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDASSAY_DATA_LIMIT_GB", "0.001")
    (tmp_path / "a.json").write_text('{"member": [%s1], "nonmember": [0]}' % ("{}," * 20_000))
    result = say("audit", "a.json", *CLAIM, *RUNS)
    assert (result.exit_code, "more than the limit of 0.001 GB" in result.stderr) == (2, True), result.output


class Trap:
    def __reduce__(self):
        return (exec, ("raise SystemError('unpickled')",))


def test_a_numpy_file_is_never_unpickled_and_a_wrong_one_is_named(say, tmp_path):
    trap = np.empty(1, dtype=object)
    trap[0] = Trap()
    wrong = {
        "member holds Python objects, which are never read": trap,
        "member must be real numbers, got <U1": np.array(["a", "b"]),
        "member must be numbers that float64 holds exactly": 2**60 + np.arange(3),
        "member must have 1 dimension(s), got shape (2, 2)": np.ones((2, 2)),
        "member must hold one value per score": np.float64(3),
    }
    for says, member in wrong.items():
        np.savez(tmp_path / "own.npz", member=member, nonmember=np.ones(3))
        result = say("audit", "own.npz", *CLAIM, *RUNS)
        assert (result.exit_code, says in result.stderr, result.stderr.count("\n")) == (2, True, 1), result.output
    np.savez(tmp_path / "own.npz", score=np.ones(3), is_member=np.array([1, 0, 63], dtype=np.uint8).view(np.bool_))
    assert "is_member must be true or false (or 1 or 0)" in say("audit", "own.npz", *CLAIM, *RUNS).stderr
    np.savez(tmp_path / "own.npz", score=np.arange(4.0), is_member=np.array([b"1", b"0", b"1", b"0"]))
    (tmp_path / "own.csv").write_text("\ufeff\ufeffscore,is_member\n0,1\n1,0\n2,1\n3,0\n", encoding="utf-8")
    for name in ("own.npz", "own.csv"):
        assert read_scores(tmp_path / name, ScoreColumns()).member.tolist() == [0, 2]
    (tmp_path / "own.npz").write_bytes(pickle.dumps(Trap()))
    result = say("audit", "own.npz", *CLAIM, *RUNS)
    assert (result.exit_code, "own.npz cannot be read as a numpy file" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ("--member member --nonmember member", 2, "s.npz: the column member is named for two purposes"),
        ("--score is_member", 2, "s.npz: the column is_member is named for two purposes (score and is_member)"),
        ("--score member --nonmember x", 2, "s.npz: --score and --nonmember name columns of two layouts"),
        ("--one-run --included x --is-member x", 2, "can be named only once, got --included and --is-member"),
        ("--clusters score", 2, "the column score is named for two purposes (score and clusters)"),
        ("--member member --nonmember equal", 2, "s.npz (columns member and equal): members and non-members have the"),
        ("--member flat --nonmember flat2", 11, "UNDERPOWERED: weak test: all scores are equal"),
        ("--member flat --nonmember flat2 --one-run --higher-is-member", 11, "UNDERPOWERED: weak test: all scores"),
        ("--member repeated --nonmember member", 2, "every score of members occurs 5 times"),
        ("--member one --nonmember member", 11, "at least 15 of each are needed to refute the claim"),
        ("--member column --nonmember member", 11, "UNDERPOWERED: weak test: the minimum detectable epsilon"),
        ("--member column --nonmember member --accept-weak", 0, "NOT REFUTED by a weak test, accepted: weak test: "),
        ("--member flat --nonmember flat2 --accept-weak", 11, "UNDERPOWERED: weak test: all scores are equal"),
    ],
)
def test_scores_that_compare_nothing_are_never_ok(say, tmp_path, options, code, words):
    rng = np.random.default_rng(0)
    member, other = rng.normal(size=600), rng.normal(size=600)
    table = {"member": member, "other": other, "equal": rng.permutation(member), "flat": np.ones(600)}
    table |= {"flat2": np.ones(600), "repeated": np.tile(other[:120], 5), "one": other[:1], "column": other[:, None]}
    np.savez(tmp_path / "s.npz", **table)
    design = () if {"--one-run", "--clusters"} & set(options.split()) else RUNS
    result = say("audit", "s.npz", "--epsilon", 1, "--delta", 1e-5, *design, *options.split())
    assert (result.exit_code, words in result.output) == (code, True), result.output


def test_a_score_that_is_not_finite_is_named_by_its_row_in_every_kind_of_file(say, tmp_path):
    table = shown(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0]), "long")
    table["score"][3] = np.inf
    for kind in KINDS:
        if kind == "json" or (kind == "parquet" and not HAS_PARQUET):
            continue
        more = write(tmp_path / f"s.{kind}", table)
        result = say("audit", f"s.{kind}", *CLAIM, *RUNS, *more)
        assert result.exit_code == 2
        assert "score: a score must be finite, got NaN or infinity in row 4 (" in result.stderr, result.output


def test_a_list_of_objects_and_an_array_with_named_fields_are_tables_too(say, tmp_path):
    rng = np.random.default_rng(0)
    rows = [{"score": float(rng.normal() + 3 * (at < 300)), "is_member": at < 300} for at in range(600)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    named = np.array([(row["score"], row["is_member"]) for row in rows], dtype=[("score", "f8"), ("is_member", "?")])
    np.save(tmp_path / "rows.npy", named)
    printed = [say("audit", name, *CLAIM, *RUNS, "--json").stdout for name in ("rows.json", "rows.npy")]
    assert json.loads(printed[0])["finding"] == json.loads(printed[1])["finding"]


def test_an_audit_of_scores_ends_by_a_signal_in_the_middle_of_a_computation(say, tmp_path):
    np.savez(tmp_path / "s.npz", member=np.arange(50.0) + 1.5, nonmember=np.arange(50.0))
    former = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        say("audit", "s.npz", *CLAIM, *RUNS)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, former)


def test_a_plain_array_without_names_is_not_guessed(say, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((5, 2)))
    result = say("audit", "a.npy", *CLAIM, *RUNS)
    assert (result.exit_code, "--columns score,is_member or --columns member,nonmember" in result.stderr) == (2, True)
    result = say("audit", "a.npy", *CLAIM, *RUNS, "--columns", "member,nonmember,x")
    assert (result.exit_code, "3 columns (--columns), got (5, 2)" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--one-run --independent-runs", "the scores can have one design only, got --independent-runs and --one-run"),
        ("--independent-runs --higher-is-member --lower-is-member", "give either --higher-is-member or"),
        ("--independent-runs --included x", "--included can be given only with --one-run"),
        ("--one-run --higher-is-member --threshold 1", "--threshold can be given only with independent runs"),
        ("--independent-runs --threshold 1", "state whether high or low scores mean member (--higher-is-member"),
        (
            "--independent-runs --estimator one_run",
            "one_run covers evidence of the design one_run, and this evidence has the ",
        ),
        ("--independent-runs --steps 9", "--steps describes the noise of DP-SGD: give --noise-multiplier as well"),
        ("--independent-runs --mu 1 --rho 1", "the law of a claim can be stated only once, got --mu and --rho"),
        ("--clusters run", "--clusters needs one row per score"),
    ],
)
def test_options_that_do_not_fit_are_refused(say, tmp_path, words, says):
    np.savez(tmp_path / "s.npz", member=np.arange(50.0) + 1.5, nonmember=np.arange(50.0))
    result = say("audit", "s.npz", *CLAIM, *words.split())
    assert (result.exit_code, says in result.stderr, result.stderr.count("\n")) == (2, True, 1), result.output


def test_what_was_not_stated_is_printed_as_assumed(say, tmp_path):
    np.savez(tmp_path / "s.npz", member=np.arange(50.0) + 0.5, nonmember=np.arange(50.0))
    printed = say("audit", "s.npz", "--epsilon", 1, "--unit", "client", *RUNS).stdout
    assert (
        "assume adjacency add_remove, observer final_model, delta 0, because --adjacency, --observer, --del" in printed
    )
    assert "\nassume" not in say("audit", "s.npz", *CLAIM, *RUNS).stdout


def test_a_page_of_few_scores_names_what_was_assumed_and_how_many_scores_or_canaries_would_do(say, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "s.npz", member=rng.normal(size=100) + 1, nonmember=rng.normal(size=100))

    def page(*words):
        say("audit", "s.npz", *words, "--html", "page.html")
        return (tmp_path / "page.html").read_text(encoding="utf-8").partition('<div class="verdict')[0]

    stated, assumed = page(*CLAIM, *RUNS), page("--epsilon", 1, "--delta", 1e-5, *RUNS)
    assert ("observer final_model" in assumed, "observer final_model" in stated) == (True, False)
    counted, needed = re.search("([0-9,]+) of each are counted", stated), re.search("about ([0-9,]+) scores of", stated)
    # A fifth of the scores only chooses the threshold, and coins leave others out.
    assert int(counted[1].replace(",", "")) < 0.8 * int(needed[1].replace(",", ""))
    canaries = page(*CLAIM, "--one-run", "--higher-is-member")
    assert ("Audit again with about 20,000 canaries" in canaries, "--trials" in canaries) == (True, False)
    # What the verdict rests on stands where the verdict stands.
    bands = [one.partition('<div class="band')[2].partition("</div>")[0] for one in (stated, canaries)]
    assert [("independent runs" in band, "fair coin" in band) for band in bands] == [(True, False), (False, True)]


def test_scores_without_a_claim_have_an_auc_a_curve_and_no_ok(say, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "s.npz", loss=rng.normal(size=3000) - 2 * (np.arange(3000) < 1500), train=np.arange(3000) < 1500
    )
    words = ("--score", "loss", "--is-member", "train", "--lower-is-member")
    result = say("audit", "s.npz", *words, "--html", "page.html")
    assert (result.exit_code, "OK" in result.stdout) == (0, False), result.output
    # The AUC of two normal laws 2 apart is .921, the TPR at FPR 1 % is .372.
    assert "AUC 0.92" in result.stdout
    assert "TPR at FPR 0.1 % not measurable with 1,500 independent non-members (4,380 are needed)" in result.stdout
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "No claim was stated" in page
    assert "<svg" in page[page.index("What the attack reaches") :]
    assert not {"No violation found", "<script"} & {word for word in ("No violation found", "<script") if word in page}
    auc, one, fewer = json.loads(say("audit", "s.npz", *words, "--json").stdout)["attack"]
    assert auc["low"] < 0.9214 < auc["high"]
    assert one["low"] < 0.3721 < one["high"]
    assert fewer["value"] is None
    assert "--lower-is-member reverses" in say("audit", "s.npz", *words[:4]).stdout
    result = say("audit", "s.npz", "--threshold", 1, *words)
    assert (result.exit_code, "--threshold can be given only with a claim" in result.stderr) == (2, True)


def test_a_fixed_split_of_one_model_has_an_auc_and_judges_no_claim(say, tmp_path):
    np.savez(tmp_path / "s.npz", member=np.arange(900.0) + 800.5, nonmember=np.arange(900.0))
    result = say("audit", "s.npz", *CLAIM, "--fixed-split", "--html", "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    # Neither more scores nor more trials, which are refused for scores, would help.
    assert ("--independent-runs" in page, "--trials" in page, "more scores" in page) == (True, False, False)
    assert (result.exit_code, "INCONCLUSIVE: OUT OF SCOPE: the members of one model" in result.stdout) == (11, True)
    assert "AUC 0.99" in result.stdout
    assert "for this one model alone" in result.stdout


def test_fair_coins_of_several_runs_count_all_scores(say, tmp_path):
    rng = np.random.default_rng(0)
    coins, runs = rng.random((40, 50)) < 0.5, np.repeat(np.arange(40), 50)
    table = {"score": (rng.normal(size=coins.shape) + 2 * coins).ravel(), "is_member": coins.ravel(), "run": runs}
    np.savez(tmp_path / "s.npz", **table)
    words = ("audit", "s.npz", *CLAIM, "--clusters", "run", "--higher-is-member")
    assert [say(*words, *more).exit_code for more in ((), ("--one-run",))] == [10, 10]
    half = np.argsort(rng.random(coins.shape)) < 25
    np.savez(tmp_path / "s.npz", **table | {"is_member": half.ravel()})
    result = say(*words, "--one-run")
    assert (result.exit_code, "each of 40 runs included exactly 25 of 50 canaries" in result.stderr) == (2, True)


def test_a_design_that_the_file_records_is_not_overruled(say, tmp_path):
    np.savez(tmp_path / "s.npz", member=np.arange(50.0) + 0.5, nonmember=np.arange(50.0), design=np.array("clustered"))
    result = say("audit", "s.npz", *CLAIM, *RUNS)
    assert (result.exit_code, "s.npz records the design clustered, and the options" in result.stderr) == (2, True)


def test_the_plan_counts_the_scores_that_are_counted(say, tmp_path):
    np.savez(tmp_path / "s.npz", member=np.arange(50.0) + 30.5, nonmember=np.arange(50.0))
    split = say("audit", "s.npz", *CLAIM, *RUNS, "--epsilon", 3).stdout
    fixed = say("audit", "s.npz", *CLAIM, *RUNS, "--epsilon", 3, "--threshold", 9, "--higher-is-member").stdout
    assert "50 + 50 scores, of which 20 % only choose the threshold: max certifiable 2.88" in split
    assert "50 + 50 scores: max certifiable 2.57" in fixed
    least = int(fixed.partition("at least ")[2].partition(" per arm")[0])
    needed = int(split.partition("at least ")[2].partition(" per arm")[0])
    assert largest_certifiable_epsilon(least, least, 1e-5, 0.05) > 3
    # By default guesses count, of as many runs as coins take.
    coins = [coin_runs(n - choosing(n), n - choosing(n)) for n in (needed - 1, needed)]
    assert [odds_low(runs, 0, 0.05, delta=1e-5, runs=runs) > 3 for runs in coins] == [False, True]


def test_two_columns_of_clusters_or_designs_and_mixed_names_of_clusters_are_refused(say, tmp_path):
    rows = [f"{number * 37 % 50},{number % 2},{number // 20},{number}" for number in range(400)]
    (tmp_path / "two.csv").write_text("\n".join(["score,is_member,run,run", *rows]))
    result = say("audit", "two.csv", *CLAIM, "--clusters", "run", "--higher-is-member")
    assert (result.exit_code, "has 2 columns with the name run" in result.stderr) == (2, True)
    mixed = [{"score": n * 37 % 50, "is_member": n % 2, "run": n // 2 or "a"} for n in range(400)]
    (tmp_path / "mixed.json").write_text(json.dumps(mixed))
    result = say("audit", "mixed.json", *CLAIM, "--clusters", "run", "--higher-is-member")
    assert (result.exit_code, "clusters must be all numbers or all texts, got int, str" in result.stderr) == (
        2,
        True,
    )


def test_a_long_word_among_the_truths_takes_its_own_memory_alone(say, tmp_path):
    rows = [f"{number},{number % 2}" for number in range(4000)]
    rows[7] = f"7,{'a' * 100_000}"  # An array of texts would have room for it in each of the 4000 rows: 1.6 GB.
    (tmp_path / "s.csv").write_text("\n".join(["score,is_member", *rows]))
    tracemalloc.start()
    result = say("audit", "s.csv", *CLAIM, *RUNS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (result.exit_code, "is_member must be true or false" in result.stderr) == (2, True)
    assert peak < 100 * 2**20


def test_an_estimator_of_the_user_s_own_is_named_by_its_file(say, tmp_path):
    (tmp_path / "own.py").write_text(
        "from fedassay.audit.estimators.clopper_pearson import clopper_pearson\n"
        "from fedassay.audit.evidence import MembershipScores\n"
        "from fedassay.audit.measurement import Measurement\n"
        "from fedassay.audit.threshold import FixedThreshold\n\n\n"
        "def at_zero(scores: MembershipScores, *, delta: float, alpha: float) -> Measurement:\n"
        "    return clopper_pearson(scores, delta=delta, alpha=alpha, threshold=FixedThreshold(0.0))\n\n\n"
        "def untyped(scores, *, delta, alpha):\n"
        "    return None\n"
    )
    np.savez(tmp_path / "s.npz", member=np.ones(200), nonmember=-np.ones(200))
    result = say("audit", "s.npz", *CLAIM, *RUNS, "--higher-is-member", "--estimator", "own.py:at_zero")
    assert (result.exit_code, "seen   at_zero, 200 + 200 trials" in result.stdout) == (10, True)
    result = say("audit", "s.npz", *CLAIM, *RUNS, "--higher-is-member", "--estimator", "own.py:untyped")
    assert (result.exit_code, "must be a function of one evidence type" in result.stderr) == (2, True)
