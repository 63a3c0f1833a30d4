"""``fedassay audit``: mechanisms and scores of one's own, the printed finding, the exit code, and what is refused.

Audits from Python: the README's example stays as short as it is, and nothing waits for torch.
"""

import json
import subprocess
import sys
from pathlib import Path

import fedassay
import numpy as np
import pytest

MINE = """\
import math
import sys

import typer


def laplace(x, rng):
    return x + rng.laplace(size=x.shape)


def coin(x, rng):
    return x == (rng.random() < math.e / (1 + math.e))


def words(x, rng):
    return x if rng.random() < 0.7 else "no"


def broken(x, rng):
    return x / 0


def lost(x, rng):
    raise FileNotFoundError("ledger.txt")


def leaves(x, rng):
    sys.exit(0)


def leaves_by_typer(x, rng):
    raise typer.Exit(0)


def shaped(x, rng):
    return x + rng.laplace(size=x.shape)


def alone(x):
    return x


def blank(x, rng):
    return float("nan")


async def waits(x, rng):
    return rng.normal()


def yields(x, rng):
    yield rng.normal()


number = 3
"""
RUNS = ("--independent-runs",)


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE, encoding="utf-8")
    yield path
    sys.modules.pop("mine", None)


@pytest.fixture
def scores(tmp_path):
    rng = np.random.default_rng(0)
    sides = {"member": rng.normal(1.85, 1, 2000), "nonmember": rng.normal(0, 1, 1500)}
    np.savez(tmp_path / "scores.npz", **sides)
    rows = [f"{a},x,{b}" for a, b in zip(sides["member"], [*sides["nonmember"], *[""] * 500], strict=True)]
    (tmp_path / "scores.csv").write_text("\n".join(["member,name, nonmember ", *rows, ""]), encoding="utf-8-sig")
    return tmp_path


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize("target", ["mine.py:laplace", "mine:laplace", "./mine.py:laplace"])
def test_a_mechanism_at_its_claim_is_ok(say, target):
    result = say("audit", target, "--epsilon", 1, "--inputs", -1, 0, "--batched", "--trials", 20_000)
    plan, claim, assumed, design, seen, gate = result.stdout.splitlines()
    # Forty thousand right guesses and no wrong one.
    assert plan == "plan   20000 + 20000 counted trials: max certifiable 9.5"
    assert assumed.startswith("assume unit report, adjacency replace_one, observer uploads, because ")
    assert design.startswith("design independent calls")
    assert claim.startswith(
        f"claim  {target}  eps 1, delta 0, one report (replace-one), adversary: the server that observes"
    )
    assert claim.endswith(": NOT REFUTED")
    assert "trials, alpha 0.05, event fixed on pilot trials, seed 0; " in seen
    assert "inputs -1 and 0; event {" in seen
    assert gate == "gate   OK: 1 claim NOT REFUTED (exit code 0)"
    assert result.exit_code == 0


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["mine:coin", "--epsilon", 0.5, "--inputs", "false", "true", "--trials", 3000], 10),
        (["mine:coin", "--epsilon", 1, "--inputs", "false", "true", "--trials", 3000], 0),
        (["mine:words", "--epsilon", 1, "--inputs", '"no"', '"yes"', "--trials", 3000], 10),
        (["mine:laplace", "--epsilon", 3, "--inputs", "[0, 0]", "[1, 1.5]", "--trials", 20_000], 0),
        (["mine:laplace", "--epsilon", 1.5, "--inputs", "[0, 0]", "[1, 1.5]", "--trials", 20_000], 10),
        (["mine:coin", "--epsilon", 5, "--inputs", 0, 1, "--trials", 50], 11),
        (["scores.npz", *RUNS, "--epsilon", 4, "--delta", 1e-5], 11),
        (["scores.npz", *RUNS, "--epsilon", 4, "--delta", 1e-5, "--accept-weak"], 0),
        (["scores.npz", *RUNS, "--epsilon", 9, "--delta", 1e-5, "--accept-weak"], 11),
        (["scores.npz", *RUNS, "--mu", 0.925, "--delta", 1e-5, "--accept-weak"], 10),
        (["scores.csv", *RUNS, "--mu", 0.925, "--delta", 1e-5], 10),
        (["scores.npz", *RUNS, "--mu", 0.925, "--delta", 1e-5, "--threshold", 0.9, "--higher-is-member"], 10),
        (["scores.npz", *RUNS, "--epsilon", 9, "--delta", 1e-5], 11),
    ],
)
def test_the_exit_code_is_that_of_the_verdict(say, scores, words, code):
    result = say("audit", *words)
    assert result.exit_code == code, result.output
    verdict = {0: "OK: 1 claim NOT REFUTED", 10: f"FAIL: claims REFUTED: {words[0]}", 11: "INCONCLUSIVE: UNDERPOWERED"}
    assert result.stdout.splitlines()[-1].startswith(f"gate   {verdict[code]}")
    assert result.stdout.splitlines()[-1].endswith(f"(exit code {code})")


def test_json_holds_the_claim_the_finding_and_the_exit_code(say, scores):
    words = ["--epsilon", 9, "--delta", 1e-5, "--observer", "final_model", "--rounds", 4, "--alpha", 0.01]
    result = say("audit", "scores.npz", *words, *RUNS, "--json")
    told = json.loads(result.stdout)
    assert told["target"] == "scores.npz"
    assert (told["claim"]["epsilon"], told["claim"]["observer"], told["claim"]["rounds"]) == (9, "final_model", 4)
    assert (told["finding"]["verdict"], told["finding"]["measurement"]["alpha"]) == ("UNDERPOWERED", 0.01)
    assert told["exit_code"] == result.exit_code == 11


@pytest.mark.usefixtures("mine", "scores")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("scores.npz --delta 0.1", "a claim must state epsilon or mu, got neither"),
        ("scores.npz --epsilon 1 --inputs 0 1", "--inputs can be given only with a mechanism, not with scores.npz"),
        ("scores.npz --epsilon 1 --trials 9", "--trials can be given only with a mechanism, not with scores.npz"),
        ("no.npz --epsilon 1 --independent-runs", "no such file: no.npz"),
        ("mine.py --epsilon 1", "cannot audit 'mine.py': the target must be a file of scores"),
        ("scores.pkl", "cannot audit 'scores.pkl': the target must be a file of scores"),
        ("no.py:f --epsilon 1 --inputs 0 1", "no such file: no.py"),
        ("no.such:f --epsilon 1 --inputs 0 1", "cannot import no.such: ModuleNotFoundError"),
        ("mine:laplase --epsilon 1 --inputs 0 1", "mine has no function or system 'laplase'; it has: laplace, "),
        (
            "mine:alone --epsilon 1 --inputs 0 1",
            "mine:alone must take two arguments, (x, rng), but its signature is (x)",
        ),
        ("mine:waits --epsilon 1 --inputs 0 1", "mine:waits is an async function"),
        ("mine:yields --epsilon 1 --inputs 0 1", "mine:yields is a generator function"),
        ("mine:number --epsilon 1 --inputs 0 1", "mine:number must be a function, got int"),
        ("mine:coin --epsilon 1", "mine:coin needs --inputs X0 X1"),
        ("mine:coin --epsilon 1 --inputs 0 yes", "--inputs must be two JSON values"),
        ("mine:coin --epsilon 1 --inputs 0 NaN", "got 'NaN': NaN is not a JSON number"),
        ("mine:coin --epsilon 1 --inputs 0 1 --threshold 0", "--threshold can be given only with a file of scores"),
        ("mine:coin --epsilon 1 --inputs 1 1", "a pair must be two different inputs, got 1 twice"),
        ("mine:blank --epsilon 1 --inputs 0 1", "outputs must hold numbers, got only NaN on both inputs"),
        ("mine:blank --epsilon 1 --inputs 0 1 --batched", "a batched mechanism must return one row per trial"),
    ],
)
def test_what_is_wrong_is_reported_in_one_paragraph(say, words, says):
    result = say("audit", *words.split())
    assert result.exit_code == 2, result.output
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert "gate" not in result.stdout


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("broken", "ZeroDivisionError: division by zero"),
        ("lost", "FileNotFoundError: ledger.txt"),
        ("leaves", "RuntimeError: the mechanism called sys.exit(0)"),
        ("leaves_by_typer", "exceptions.Exit: 0"),
        ("shaped", "AttributeError: 'int' object has no attribute 'shape'"),
    ],
)
def test_what_the_mechanism_raises_is_a_crash_that_shows_its_own_frames_alone(say, tmp_path, name, error):
    result = say("audit", f"mine:{name}", "--epsilon", 1, "--inputs", 0, 1)
    assert (result.exit_code, "gate" in result.stdout) == (1, False)
    assert result.stderr.startswith(f"cannot audit mine:{name}, because it raised an exception:\n")
    assert f"{error}\n" in result.stderr
    assert "raised by the mechanism in the first calls on input 0 (0), trial 0\n" in result.stderr
    assert ("--batched" in result.stderr) is (name in ("shaped", "alone"))
    frames = [line for line in result.stderr.splitlines() if line.startswith("  File ")]
    assert len(frames) == (name != "alone")
    assert all(f'File "{tmp_path / "mine.py"}", line ' in frame for frame in frames)


def test_a_file_finds_what_lies_beside_it(say, tmp_path):
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "beside_it.py").write_text("SCALE = 1.0\n")
    (folder / "far.py").write_text(
        "from beside_it import SCALE\n\n\ndef f(x, rng):\n    return x + rng.laplace(0, SCALE)\n"
    )
    result = say("audit", "deep/far.py:f", "--epsilon", 2, "--inputs", 0, 1, "--trials", 2000)
    assert result.exit_code == 0, result.output


def test_an_interrupted_audit_ends_with_130(say, tmp_path):
    (tmp_path / "slow.py").write_text("def f(x, rng):\n    raise KeyboardInterrupt\n")
    result = say("audit", "slow.py:f", "--epsilon", 1, "--inputs", 0, 1)
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


def test_scores_that_a_run_s_attack_left_are_no_independent_trials(say, tmp_path):
    sides = {"member": np.arange(50.0) + 100, "nonmember": np.arange(50.0)}
    for design, code in (("independent", 10), ("clustered", 2)):
        np.savez(tmp_path / "left.npz", **sides, design=np.array(design))
        result = say("audit", "left.npz", "--epsilon", 1, "--threshold", 75, "--higher-is-member")
        assert result.exit_code == code
    assert (
        result.stderr
        == "the scores in left.npz are dependent (clustered), but an audit needs one score from each of many "
        "independent runs, with and without the audited sample or client\n"
    )


README = Path(fedassay.__file__).resolve().parent / "README.md"


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not README.is_file(), reason="an installed wheel has no README.md")
def test_the_readmes_example_is_six_lines():
    blocks = [block.partition("```")[0] for block in README.read_text(encoding="utf-8").split("```python\n")[1:]]
    (code,) = [block for block in blocks if "def noisy" in block]
    assert "fedassay.audit_mechanism(" in code
    assert len([line for line in code.splitlines() if line.strip()]) <= 6


@pytest.mark.simulations
def test_a_mechanism_is_audited_without_torch():
    code = "import sys, fedassay\n"
    code += "claim = fedassay.Claim.stated(delta=1e-5, mu=1.0)\n"
    code += "done = fedassay.audit_mechanism(lambda x, rng: x + rng.normal(), claim, inputs=(0.0, 1.0), trials=100)\n"
    code += "fedassay.audit_scores([1.0, 2.0], [0.0, 1.0], claim, design='independent')\n"
    code += "fedassay.ball_neighbours(2, radius=1.0)\n"
    code += "assert isinstance(done, fedassay.Finding)\n"
    code += "assert fedassay.judge(claim, done.measurement) == done\n"
    code += "print([name for name in ('torch', 'pandas', 'sklearn', 'pydantic', 'typer') if name in sys.modules])\n"
    assert python(code) == "[]\n"
