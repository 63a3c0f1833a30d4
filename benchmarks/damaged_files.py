"""Damages files that fedassay reads, and counts what the commands make of them.

    python benchmarks/damaged_files.py [--each 430] [--seed 0] [--kinds scores data checkpoints runs ...] [--save DIR]

Each kind of file is written once, by fedassay or as a user would. Each mutant is a copy in which one file is damaged
once to three times: bytes exchanged, cut off, doubled or inserted, lines removed, doubled or swapped, numbers and words
replaced by odd ones. A command then reads it in a process of its own. Counted: exit codes, tracebacks, wrong verdicts,
CPU seconds, and memory of a whole process.

Scores have no checksum, so that a mutant may be another valid file: it counts as a wrong verdict where the claim of a
right file is refuted, or a broken claim is not. Trainings from a damaged checkpoint must end as undamaged, and so must
audits of damaged kept runs, unless they are refused.
"""

import argparse
import contextlib
import json
import os
import random
import re
import resource
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LONGEST_S, LARGEST = 20, 2 << 30
ODD = [b"nan", b"-inf", b"1e400", b"-1", b"0", b"1_000", b"true", b"null", b"[]", b"{}", b'""', b"9" * 30]
ODD += [b"\x00", b"\xff\xfe", b"../../x", b"1,5", b'"', b"\n", b"\r\n", b"[" * 2000, b"a" * 100_000, b"1e-320"]
NAMES = ("cell_id", "metric", "value", "ci_low", "ci_high", "verdict")


def damaged(content: bytes, rng: random.Random) -> bytes:
    """A copy that is damaged once to three times."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at, to = sorted(rng.randrange(len(content) + 1) for _ in range(2)) if content else (0, 0)
        way, lines = rng.randrange(12), content.split(b"\n")
        if way == 0 and content:
            at = min(at, len(content) - 1)
            content = content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
        elif way == 1:
            content = content[:at]
        elif way == 2:
            content = content[:at] + content[min(to, at + 200) :]
        elif way == 3:
            content = content[:at] + rng.choice(ODD) + content[at:]
        elif way == 4:
            content = content[:to] + content[at:to][:5000] + content[to:]
        elif way > 8:  # Another digit.
            if digits := [place for place, one in enumerate(content) if 48 <= one < 58]:
                at = rng.choice(digits)
                content = content[:at] + b"%d" % rng.randrange(10) + content[at + 1 :]
        elif way in (5, 6):  # A number or a word becomes an odd one.
            words = list(re.finditer(rb"[-+.\w]+", content))
            if words:
                one = rng.choice(words)
                content = content[: one.start()] + rng.choice(ODD) + content[one.end() :]
        elif len(lines) > 1:
            one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
            if way == 7:
                lines[one], lines[other] = lines[other], lines[one]
            elif rng.random() < 0.5:
                lines.insert(other, lines[one])
            else:
                del lines[one]
            content = b"\n".join(lines)
    return content


@dataclass
class Case:
    """Files in ``folder``, of which those that ``files`` names are damaged in turn; ``command``: words after fedassay.

    ``wrong``: exit codes that no mutant may have; ``same``: whether a command that refuses nothing must print the
    verdicts of the undamaged folder; ``result``: of the folder afterwards, which must be that of the undamaged one;
    ``prepare``: what the process of the command does first.
    """

    folder: Path
    command: tuple[str, ...]
    files: tuple[str, ...] = ()
    wrong: tuple[int, ...] = ()
    same: bool = False
    result: Callable[[Path], str] | None = None
    prepare: Callable[[], None] = lambda: None


@dataclass
class Ended:
    code: int
    output: str
    cpu_s: float
    memory: int


def run(case: Case, folder: Path) -> Ended:
    """The command in ``folder``, in a process of its own that has imported fedassay already."""
    log = folder.parent / "log"
    if not (child := os.fork()):
        with log.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_CPU, (3 * LONGEST_S, 3 * LONGEST_S))
        sys.argv = ["fedassay", *case.command]
        code = 1
        try:
            from fedassay.cli.app import app

            case.prepare()
            app()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    _, status, used = os.wait4(child, 0)
    output = log.read_text("utf-8", "replace")
    return Ended(os.waitstatus_to_exitcode(status), output, used.ru_utime + used.ru_stime, 1024 * used.ru_maxrss)


def score_cases(root: Path) -> Iterator[Case]:
    rng = np.random.default_rng(0)
    claim = ("--epsilon", "1", "--unit", "sample", "--adjacency", "add_remove", "--observer", "final_model")
    for name, shift, wrong in (("right", 0.0, (10,)), ("broken", 4.0, (0,))):
        member, nonmember = rng.normal(size=3000) + shift, rng.normal(size=3000)
        both = {"score": np.concatenate([member, nonmember]), "is_member": np.arange(6000) < 3000}
        for kind in ("csv", "json", "npz", "npy"):
            folder = root / f"{name}_{kind}"
            folder.mkdir()
            path, options = folder / f"scores.{kind}", ()
            if kind == "csv":
                rows = [f"{score:.6f},{int(is_member)}" for score, is_member in zip(*both.values(), strict=True)]
                path.write_text("\n".join(["score,is_member", *rows, ""]))
            elif kind == "json":
                path.write_text(json.dumps({"member": member.tolist(), "nonmember": nonmember.tolist()}))
            elif kind == "npz":
                np.savez(path, member=member, nonmember=nonmember)
            else:
                np.save(path, np.stack([member, nonmember], axis=1))
                options = ("--columns", "member,nonmember", "--member", "member", "--nonmember", "nonmember")
            words = ("audit", path.name, *claim, *options, "--independent-runs", "--higher-is-member", "--accept-weak")
            yield Case(folder, words, (path.name,), wrong)


def data_cases(root: Path) -> Iterator[Case]:
    rng, folder = np.random.default_rng(0), root
    labels = rng.integers(3, size=300)
    np.savez(folder / "images.npz", x_train=(rng.random((300, 8, 8)) + labels[:, None, None]) / 4, y_train=labels)
    np.savez_compressed(folder / "packed.npz", x_train=rng.random((300, 5)), y_train=labels)
    rows = [f"{20 + i % 40},{1000 * (i % 2) + i},{('cook', 'nurse')[i % 2]},{i % 2}" for i in range(300)]
    (folder / "table.csv").write_text("\n".join(["age,income,job,label", *rows]))
    for name in ("images.npz", "packed.npz", "table.csv"):
        yield Case(folder, ("list", "datasets", f"./{name}"), (name,))


SUITE = """\
name = "small"
alpha = 0.05
seeds = 1
[federations.main]
dataset = "digits"
samples = 200
model = "logistic"
clients = 4
rounds = 6
cohort = "full"
lot = { poisson = 0.2 }
algorithm = { name = "fedsgd", learning_rate = 0.5 }
[defenses.none]
[defenses.dp_sgd]
epsilon = 4.0
delta = 1e-5
[attacks.loss]
count = 4
[audit]
trials = 512
"""


def made(folder: Path, command: tuple[str, ...], prepare: Callable[[], None] = lambda: None) -> None:
    """What a command writes, as a user runs it."""
    ended = run(Case(folder, command, prepare=prepare), folder)
    if ended.code not in (0, 11, 75):
        raise SystemExit(f"fedassay {' '.join(command)} ended with {ended.code}:\n{ended.output}")


def values(folder: Path) -> str:
    """The rows of a run in ``folder``, without their times."""
    found = [json.loads(line) for line in (folder / "run" / "results.jsonl").read_text().splitlines()]
    rows = [{name: one[name] for name in NAMES} for one in found]
    return json.dumps(sorted(rows, key=json.dumps))


def record_cases(root: Path) -> Iterator[Case]:
    (root / "small.toml").write_text(SUITE)
    made(root, ("run", "small.toml", "-o", "run", "-j", "1", "--accept-weak"))
    made(root, ("gate", "run", "--baseline", "baseline.json", "--accept"))
    texts = [one for one in sorted((root / "run").rglob("*")) if one.suffix in (".json", ".jsonl", ".csv")]
    files = tuple(str(one.relative_to(root)) for one in texts)
    first = ("run/results.jsonl", "run/manifest.json", "baseline.json")
    for command in (
        ("gate", "run", "--baseline", "baseline.json"),
        ("report", "run", "--md", "page.md", "--html", "page.html", "--csv", "all.csv"),
        ("compare", "baseline.json", "run"),
        ("site", "run", "-o", "pages"),
        ("resume", "run", "-j", "1"),
        ("report", "run", "--pack", "pack"),
    ):
        read = files if command[0] == "resume" else (*first, *files)
        yield Case(root, command, read, (0, 10) if command[0] == "gate" else ())


def checkpoint_cases(root: Path) -> Iterator[Case]:
    def every_round() -> None:
        from fedassay.suites.attacking import checkpoint

        checkpoint.EVERY_S = 0.0

    def stops() -> None:
        from fedassay.suites.results.store import Store

        every_round()
        real, written = Store.save_arrays, []

        def save(*given: object) -> None:
            real(*given)  # type: ignore[arg-type]
            written.append(given[2])
            if len(written) == 3:
                os._exit(75)

        Store.save_arrays = save  # type: ignore[method-assign,assignment]

    text = SUITE[: SUITE.index("[defenses.dp_sgd")]
    adam = '"fedavg", local_steps = 2, optimizer = "adam", keep_moments = true'
    (root / "small.toml").write_text(text.replace('"fedsgd"', adam))
    made(root, ("run", "small.toml", "-o", "run", "-j", "1"), stops)
    files = tuple(str(one.relative_to(root)) for one in root.rglob("checkpoint.npz"))
    yield Case(root, ("resume", "run", "-j", "1"), files, result=values)


def run_cases(root: Path) -> Iterator[Case]:
    text = "import numpy as np\n\ndef train(x, rng):\n    return np.array([rng.laplace() + x, rng.normal()])\n"
    for name, epsilon, wrong in (("right", "1", (10,)), ("broken", ".2", (0,))):
        folder = root / name
        folder.mkdir()
        (folder / "loop.py").write_text(text)
        words = ("audit", "loop.py:train", "--epsilon", epsilon, "--inputs", "0", "1", "--trials", "400")
        words += ("--keep", "kept", "--accept-weak")
        run(Case(folder, words), folder)
        files = tuple(str(one.relative_to(folder)) for one in sorted((folder / "kept").rglob("*.npy"))[::40])
        files += ("kept/training.json", "kept/verdicts.json")
        yield Case(folder, words, files, wrong, same=True)


SYSTEM = """\
import numpy as np
import torch
from fedassay.adapters.opacus import Training
from opacus import PrivacyEngine
from torch import nn

x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
rows = torch.utils.data.TensorDataset(x, torch.zeros(40, 1))


def build(data):
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    engine = PrivacyEngine(accountant="prv")
    noise = {"noise_multiplier": 2.0, "max_grad_norm": 1.0}
    return *engine.make_private(module=model, optimizer=optimizer, data_loader=loader, **noise), engine


def train(model, optimizer, loader, engine):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


system = Training(build, train, rows, delta=1e-5)
"""


def replica_cases(root: Path) -> Iterator[Case]:
    (root / "system.py").write_text(SYSTEM)
    words = ("audit", "system.py:system", "--keep", "kept", "--trials", "60", "--accept-weak")
    run(Case(root, words), root)
    files = tuple(str(one.relative_to(root)) for one in sorted((root / "kept").rglob("*")) if one.is_file())
    yield Case(root, words, files, (10,), same=True)


SHORT = ("quick", "gradients", "labels", "membership", "users", "text", "vertical", "transfer", "fedre", "apes_figures")
"""Bundled suites whose plan takes few seconds."""


def suite_cases(root: Path) -> Iterator[Case]:
    import fedassay.suites

    def without_pilots() -> None:
        # They run the suite's own cells, for as long as these take.
        from fedassay.suites.planning import estimate

        estimate.pilot_times = lambda _: None  # type: ignore[assignment]

    for path in sorted(Path(fedassay.suites.__path__[0]).rglob("*.toml")):
        if path.stem in SHORT:
            folder = root / path.stem
            folder.mkdir()
            shutil.copy(path, folder)
            yield Case(folder, ("plan", path.name), (path.name,), prepare=without_pilots)


CASES = {
    "scores": score_cases,
    "data": data_cases,
    "checkpoints": checkpoint_cases,
    "runs": run_cases,
    "replicas": replica_cases,
    "records": record_cases,
    "suites": suite_cases,
}


def verdict(output: str) -> str:
    """The verdicts that a command prints."""
    return " ".join(re.findall(r"NOT REFUTED|REFUTED|UNDERPOWERED|INCONCLUSIVE|FAILED", output))


def measured(kind: str, each: int, seed: int, save: str) -> bool:
    rng, codes, found = random.Random(seed), Counter[int](), list[str]()
    slowest, largest = 0.0, 0
    with tempfile.TemporaryDirectory() as place:
        (root := Path(place, "original")).mkdir()
        cases, copy = list(CASES[kind](root)), Path(place, "copy")
        expected = list[tuple[str, str]]()
        for case in cases:
            shutil.copytree(case.folder, copy, symlinks=True)
            ended = run(case, copy)
            if ended.code not in (0, 10, 11):
                raise SystemExit(f"{case.command} of the undamaged files ended with {ended.code}:\n{ended.output}")
            expected.append((verdict(ended.output), case.result(copy) if case.result else ""))
            shutil.rmtree(copy)
        for number in range(each):
            case, (line, result) = cases[number % len(cases)], expected[number % len(cases)]
            shutil.copytree(case.folder, copy, symlinks=True)
            hurt = copy / case.files[number // len(cases) % len(case.files)]
            hurt.write_bytes(damaged(hurt.read_bytes(), rng))
            ended = run(case, copy)
            codes[ended.code] += 1
            slowest, largest = max(slowest, ended.cpu_s), max(largest, ended.memory)
            changed = case.same and ended.code != 2 and verdict(ended.output) != line
            changed |= case.result is not None and case.result(copy) != result
            whys = {
                "traceback": "Traceback (most recent call last)" in ended.output or ended.code == 1 or ended.code < 0,
                "wrong": ended.code in case.wrong or changed,
                "too long": ended.cpu_s > LONGEST_S,
                "too large": ended.memory > LARGEST,
            }
            if any(whys.values()):
                why = ", ".join(name for name in whys if whys[name])
                words = f"  {why}: mutant {number}, {hurt.name}: {' '.join(case.command)}: exit code {ended.code}, "
                found.append(f"{words}{ended.cpu_s:.1f} CPU s: {ended.output[-700:]}")
                if save:
                    shutil.copytree(copy, Path(save, f"{kind}_{number}"), dirs_exist_ok=True)
            shutil.rmtree(copy)
    words = f"{kind}: {each} mutants, exit codes {dict(sorted(codes.items()))}, {len(found)} found wrong"
    print(f"{words}, at most {slowest:.1f} CPU s and {largest / 2**20:.0f} MB", *found, sep="\n", flush=True)
    return not found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=430)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=CASES, default=[*CASES])
    parser.add_argument("--save", default="", help="folder for copies of what was found wrong")
    given = parser.parse_args()
    import fedassay.api  # Before the first fork, so that each command begins with it.
    import fedassay.cli.app  # noqa: F401

    with contextlib.suppress(ImportError):
        import opacus  # noqa: F401
    sound = [measured(kind, given.each, given.seed, given.save) for kind in given.kinds]
    raise SystemExit(0 if all(sound) else 1)


if __name__ == "__main__":
    main()
