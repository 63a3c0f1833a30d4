"""Run folders of a suite whose every value is known, to be compared and gated."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from row_facts import FACTS
from run_files import RunFiles, finish
from toy_claim import toy_claim

DIRECTIONS = {"accuracy": "higher_better"}


@dataclass
class Crafted(RunFiles):
    """Rows and manifest of a run; ``cell`` adds one value a seed."""

    def row(self, **fields: Any) -> None:
        row = FACTS | {"model": "mlp", "defense": "mine", "observer": "uploads", "metric": "auc", "seed": 0} | fields
        row.setdefault("direction", DIRECTIONS.get(row["metric"], "higher_leaks"))
        row.setdefault("cell_id", f"c{len(self.lines):05d}")
        self.lines.append({"schema": "result-2", **row})

    def cell(self, values: Any, **fields: Any) -> "Crafted":
        for seed, value in enumerate(values):
            self.row(seed=seed, value=float(value), **fields)
        return self

    def audit(self, verdict: str, *, defense: str = "mine", epsilon: float = 4.0, control: bool = False) -> "Crafted":
        claim = toy_claim(epsilon, mu=0.925)
        self.state(claim, defense=defense, control=control)
        of = {"role": "audit", "attack": "likelihood_ratio", "observer": "global_models", "metric": "epsilon_low"}
        self.row(**of, defense=defense, control=control, claim_id=claim.claim_id, verdict=verdict, value=0.7, seed=None)
        return self

    def resign(self, **changes: Any) -> None:
        """The first claim in other words; its row stays about it."""
        entry = self.claims[0]
        claim = replace(Claim.from_dict(entry["claim"]), **changes)
        entry.update(claim_id=claim.claim_id, claim=claim.to_dict())
        for line in self.lines:
            if line["role"] == "audit":
                line["claim_id"] = claim.claim_id

    def write(self, planned: int | None = None) -> Path:
        cells = {line["cell_id"] for line in self.lines}
        self.manifest["planned_cells"] = len(cells) if planned is None else planned
        self.save()
        finish(self.path)
        return self.path


@pytest.fixture
def craft(tmp_path):
    """(name) -> an empty run of that name."""

    def start(name: str, seeds: int = 8) -> Crafted:
        suite = {
            "name": "s",
            "version": "1",
            "device": "cpu",
            "federations": {"main": {"dataset": "digits", "rounds": 20}},
            "attacks": {"loss": {"count": 8}},
            "defenses": {"mine": {"epsilon": 4.0}},
            "alpha": 0.01,
            "audit": {"replicas": 500, "canary": "dirac"},
        }
        manifest = {
            "schema": "manifest-1",
            "run_id": "r",
            "name": name,
            "suite": suite,
            "seeds": list(range(seeds)),
            "command": "fedassay run s.toml",
            "started": "2026-01-05T09:14:02Z",
            "finished": "2026-01-05T09:14:50Z",
            "versions": {"fedassay": "0.1.0", "torch": "2.15.0"},
            "data": {"digits": "0" * 64},
        }
        return Crafted(path=tmp_path / name, manifest=manifest)

    return start


@pytest.fixture
def scatter():
    """(number) -> eight values around .6 that differ from seed to seed; the same for the same number."""

    def draw(number: int = 0, seeds: int = 8):
        return 0.6 + np.random.default_rng(number).normal(0, 0.02, seeds)

    return draw
