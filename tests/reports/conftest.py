"""A run's folder made by hand: small enough to know every answer, or as large as the quick suite's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedassay.audit.binomial import upper_bound
from fedassay.audit.claim import Adjacency, Claim, Unit
from fedassay.audit.curve import GaussianCurve
from fedassay.audit.observer import UPLOADS
from fedassay.reports.formats.page import html
from fedassay.reports.reading.run_folder import RunFolder
from row_facts import FACTS
from run_files import RunFiles
from toy_claim import toy_claim

ALPHA = 0.01
TRIALS = 500
SEEDS = (0, 1, 2)
GRADIENT = {"none": 24.0, "dp_fedavg": 11.0, "dp_sgd": 9.5, "ldp_gaussian": 7.5}
ACCURACY = {
    "none": 0.947,
    "dp_fedavg": 0.905,
    "noise_halved": 0.926,
    "dp_sgd": 0.881,
    "no_clip": 0.884,
    "ldp_gaussian": 0.612,
}
MEMBERSHIP = {"none": 0.83, "dp_fedavg": 0.55, "dp_sgd": 0.58, "ldp_gaussian": 0.52}


@dataclass
class RunMaker(RunFiles):
    """Rows, claims and arrays of a run; what is not given gets a default."""

    def row(self, **fields: Any) -> dict[str, Any]:
        """Adds one record; what is not given gets a default."""
        row: dict[str, Any] = FACTS | {"schema": "result-2", "run_id": "r" * 12, "suite": "quick", "model": "mlp"}
        row |= {"metric": "auc", "seed": 0}
        row |= fields
        row.setdefault("cell_id", f"c{len(self.lines):04d}")
        self.lines.append(row)
        return row

    def accuracy_row(self, **fields: Any) -> dict[str, Any]:
        return self.row(**({"role": "utility", "attack": "training", "metric": "accuracy"} | fields))

    def verdict_row(self, signed: Claim, **fields: Any) -> dict[str, Any]:
        found = {"role": "audit", "metric": "epsilon_low", "value": 1.0, "seed": None, "claim_id": signed.claim_id}
        return self.row(**(found | fields))

    def sign(
        self,
        defense: str,
        signed: Claim,
        control: bool = False,
        federation: str = "main",
        variant: str = "",
        spent: list[tuple[int, float]] | None = None,
    ) -> Claim:
        told = {} if spent is None else {"spent": spent}
        self.state(signed, defense=defense, federation=federation, control=control, variant=variant, **told)
        return signed

    def arrays(self, cell_id: str, name: str, **arrays: Any) -> str:
        """Writes an npz artifact and returns its path below the folder."""
        folder = self.path / "cells" / cell_id
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / f"{name}.npz", **arrays)
        return f"cells/{cell_id}/{name}.npz"

    def rounds(self, cell_id: str, accuracy: list[float], name: str = "accuracy", loss: Sequence[float] = ()) -> str:
        """Writes a table of one metric by round, with a column of losses if these are given."""
        folder = self.path / "cells" / cell_id
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"round,{name}", *(f"{number},{value:.4f}" for number, value in enumerate(accuracy, start=1))]
        more = ["", *(f",{value:.4f}" for value in loss)] if loss else [""] * len(lines)
        more[0] = ",loss" if loss else ""
        (folder / "rounds.csv").write_text("".join(f"{a}{b}\n" for a, b in zip(lines, more, strict=True)))
        return f"cells/{cell_id}/rounds.csv"

    def write(self) -> RunFolder:
        self.save()
        return RunFolder.read(self.path)


def maker(path: Path) -> RunMaker:
    defenses = [
        {"label": label} for label in ("none", "dp_fedavg", "noise_halved", "dp_sgd", "no_clip", "ldp_gaussian")
    ]
    attacks = ["inverting_gradients", "loss", "alignment", "llg", "mean_image", "coin"]
    suite = {"name": "quick", "version": "1", "description": "a first look", "alpha": ALPHA}
    return RunMaker(
        path=path,
        manifest={
            "schema": "manifest-1",
            "run_id": "r" * 12,
            "name": path.name,
            "suite": {**suite, "federations": [{"name": "main", "defenses": defenses, "attacks": attacks}]},
            "seeds": list(SEEDS),
            "command": "fedassay run quick --seed 0",
            "started": "2026-01-05T09:14:02Z",
            "finished": "2026-01-05T09:14:50Z",
            "versions": {"fedassay": "0.1.0", "numpy": "2.4.6", "torch": "2.15.0"},
            "python": "3.11.9",
            "git": {"commit": "3f9a" * 10, "dirty": False},
            "hardware": {"cpu": "a processor", "cores": 2, "memory_gb": 16.0},
            "data": {"digits": "0" * 64},
            "planned_cells": 108,
        },
    )


def audit(run: RunMaker, defense: str, signed: Claim, shift: float, verdict: str, control: bool = False) -> None:
    """One judged claim: scores of 500 runs per arm, means ``shift`` apart, counted at half the claimed shift."""
    rng = np.random.default_rng(len(defense))
    nonmember, member = rng.normal(0, 1, TRIALS), rng.normal(shift, 1, TRIALS)
    threshold = (signed.curve.mu if isinstance(signed.curve, GaussianCurve) else 1.0) / 2
    errors = [int((nonmember >= threshold).sum()), int((member < threshold).sum())]
    high = [float(upper_bound(wrong, TRIALS, ALPHA / 2)) for wrong in errors]
    ratios = [(1 - high[1] - signed.delta) / high[0], (1 - high[0] - signed.delta) / high[1]]
    cell_id = f"audit_{defense}"
    bounds = {"fpr_high": high[0], "fnr_high": high[1], "alpha": ALPHA}
    run.verdict_row(
        signed,
        cell_id=cell_id,
        defense=defense,
        control=control,
        attack="canary",
        observer=str(signed.observer),
        value=max(0.0, *(float(np.log(max(ratio, 1e-9))) for ratio in ratios)),
        ci_level=1 - ALPHA,
        ci_method="Clopper-Pearson",
        ceiling=4.53,
        detectable=6.1,
        verdict=verdict,
        route="curve",
        n=TRIALS,
        unit=str(signed.unit),
        artifact=run.arrays(cell_id, "scores", member=member, nonmember=nonmember, threshold=threshold, **bounds),
    )


def _pictures(count: int, side: int, seed: int) -> np.ndarray:
    """(count, 1, side, side) in [0, 1]: rings and bars, so that a person can tell one from another."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
    turn = rng.uniform(0, np.pi, count)[:, None, None]
    radius = rng.uniform(0.3, 0.9, count)[:, None, None]
    bars = np.abs(x * np.cos(turn) + y * np.sin(turn)) < 0.15
    rings = np.abs(np.hypot(x, y) - radius) < 0.14
    return np.where((np.arange(count) % 2 == 0)[:, None, None], bars, rings)[:, None].astype(float)


def gradient_rows(run: RunMaker, attack: str, role: str, defense: str, level: float, images: int = 8) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng([seed, len(defense), len(attack)])
        originals = _pictures(images, 16, seed)
        psnr = level + rng.normal(0, 1.5, images)
        noise = rng.normal(0, 1, originals.shape) * (10 ** (-psnr / 20))[:, None, None, None]
        cell_id = f"{attack}_{defense}_{seed}"
        reconstructions = np.clip(originals + noise, 0, 1)
        artifact = run.arrays(cell_id, "images", originals=originals, reconstructions=reconstructions, psnr=psnr)
        common = {"cell_id": cell_id, "defense": defense, "role": role, "attack": attack, "seed": seed}
        common |= {"observer": "uploads", "scope": "record", "artifact": artifact}
        for record in range(images):
            one = {**common, "record": record}
            value = float(psnr[record])
            run.row(**one, metric="psnr", value=value, direction="higher_leaks", unit="dB")
            run.row(**one, metric="mse", value=10 ** (-value / 10), direction="lower_leaks")
            run.row(**one, metric="ssim", value=min(1.0, value / 30), direction="higher_leaks")
            run.row(**one, metric="lpips", status="unavailable", reason="no ImageNet weights on this machine")


def _membership_rows(run: RunMaker, attack: str, role: str, defense: str, auc: float) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng([seed, len(defense), len(attack)])
        cell_id = f"{attack}_{defense}_{seed}"
        artifact = run.arrays(cell_id, "scores", member=rng.normal(size=200), nonmember=rng.normal(size=200))
        common = {"cell_id": cell_id, "defense": defense, "role": role, "attack": attack, "seed": seed}
        common |= {"observer": "global_models", "direction": "higher_leaks", "n": 400, "artifact": artifact}
        run.row(**common, metric="auc", value=auc + rng.normal(0, 0.008))
        run.row(**common, metric="balanced_accuracy", value=auc - 0.03 + rng.normal(0, 0.01))
        run.row(**common, metric="tpr_at_fpr_0.01", value=abs(auc - 0.49) / 4 + abs(rng.normal(0, 0.003)))


def _utility_rows(run: RunMaker, defense: str, accuracy: float) -> None:
    for seed in SEEDS:
        final = accuracy + np.random.default_rng([seed, len(defense)]).normal(0, 0.004)
        cell_id = f"training_{defense}_{seed}"
        curve = [final - 0.7 * 0.75**number * final for number in range(20)]
        run.accuracy_row(
            cell_id=cell_id,
            defense=defense,
            control=defense in ("no_clip", "noise_halved"),
            seed=seed,
            value=final,
            direction="higher_better",
            artifact=run.rounds(cell_id, curve),
        )


def quick_run(path: Path) -> RunMaker:
    """As large as the quick suite: six defenses, two of them controls; gradient, membership and label attacks."""
    run = maker(path)
    client, sample = toy_claim(4.0, mu=0.925), toy_claim(8.0, mu=1.62, unit=Unit.SAMPLE, delta=1e-6)
    report = toy_claim(6.0, unit=Unit.REPORT, adjacency=Adjacency.REPLACE_ONE, observer=UPLOADS, dp_model="local")
    audit(run, "dp_fedavg", run.sign("dp_fedavg", client), 0.9, "NOT_REFUTED")
    audit(run, "noise_halved", run.sign("noise_halved", client, control=True), 3.9, "REFUTED", control=True)
    audit(run, "dp_sgd", run.sign("dp_sgd", sample), 1.5, "NOT_REFUTED")
    audit(run, "no_clip", run.sign("no_clip", sample, control=True), 6.0, "REFUTED", control=True)
    audit(run, "ldp_gaussian", run.sign("ldp_gaussian", report), 0.4, "UNDERPOWERED")
    for defense, level in GRADIENT.items():
        gradient_rows(run, "inverting_gradients", "attack", defense, level)
        gradient_rows(run, "mean_image", "null", defense, 10.5)
    for defense, auc in MEMBERSHIP.items():
        _membership_rows(run, "loss", "attack", defense, auc)
        _membership_rows(run, "alignment", "attack", defense, min(1.0, auc + 0.06))
        _membership_rows(run, "coin", "null", defense, 0.5)
        for seed in SEEDS if defense != "dp_fedavg" else ():
            value = 1.0 if defense == "none" else round(0.3 + auc / 2 + seed / 50, 3)
            common = {"defense": defense, "attack": "llg", "seed": seed, "observer": "uploads"}
            run.row(**common, metric="label_accuracy", value=value, direction="higher_leaks")
    for defense, accuracy in ACCURACY.items():
        _utility_rows(run, defense, accuracy)
    common = {"defense": "ldp_gaussian", "attack": "alignment", "observer": "global_models", "metric": "none"}
    run.row(**common, seed=3, status="failed", reason="ValueError: clip_norm must be > 0")
    common = {"defense": "dp_fedavg", "attack": "llg", "observer": "uploads", "metric": "none"}
    run.row(**common, status="skipped", reason="sees sums only: no upload of one client to read labels from")
    line = "INCOMPLETE: 1 cell FAILED (ldp_gaussian)"
    run.gate = {"verdict_line": line, "exit_code": 12}
    return run


def membership(run: RunMaker, defense: str, attack: str = "loss", **changes: Any) -> None:
    """Scores of one seed's attack on samples at the server that observes individual updates, and its AUC row."""
    given: dict[str, Any] = {"member": [2.0, 1.0], "nonmember": [0.0, 1.0], "seed": 0, "role": "attack"}
    given |= {"observer": "uploads", "unit": "sample", "adjacency": "add_remove", "rounds": 20, "design": "clustered"}
    given |= {"federation": "main", **changes}
    row = {name: given.pop(name) for name in ("seed", "role", "observer", "federation")}
    arrays = {name: np.asarray(value) for name, value in given.items()}
    cell_id = f"{row['federation']}_{attack}_{defense}_{row['seed']}"
    run.row(
        **row,
        cell_id=cell_id,
        defense=defense,
        attack=attack,
        metric="auc",
        value=0.5,
        artifact=run.arrays(cell_id, "scores", **arrays),
    )


@pytest.fixture
def add_membership() -> Callable[..., None]:
    return membership


@pytest.fixture
def run_maker(tmp_path: Path) -> RunMaker:
    return maker(tmp_path / "run")


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Rows of an attack and of the training on three seeds, and a row of a failure; read it only."""
    run = maker(tmp_path_factory.mktemp("small") / "run")
    for number in range(3):
        run.row(value=0.5, seed=number)
        run.accuracy_row(value=0.9, seed=number)
    run.row(status="failed", reason="x")
    return run.write()


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[[str], RunMaker]:
    """(name) -> the maker of a run of that name, in a folder of its own."""
    return lambda name: maker(tmp_path / name)


@pytest.fixture(scope="session")
def quick_folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return quick_run(tmp_path_factory.mktemp("runs") / "2026-01-05T09-14-02Z_quick_3f9a").write()


@pytest.fixture(scope="session")
def make_claim() -> Callable[..., Claim]:
    return toy_claim


@pytest.fixture(scope="session")
def quick_page(quick_folder: RunFolder) -> str:
    return html(quick_folder)
