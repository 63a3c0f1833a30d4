"""Keeps the projections of finished runs in a file, one line each, so that an interrupted audit goes on from there."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..audit.arrays import FloatArray


@dataclass(kw_only=True)
class KeptProjections:
    """The projections of finished runs, by (with the unit, number of the run).

    Args:
        path: of the file; None keeps them in memory only.
        facts: what determines the runs; a file of other facts holds the runs of something else.

    Raises:
        ValueError: for a file of other facts, and for one that holds no runs.
    """

    path: Path | None
    facts: Mapping[str, Any]
    runs: dict[tuple[bool, int], FloatArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is None or not self.path.exists():
            return
        head, *lines = self.path.read_text(encoding="utf-8").splitlines() or [""]
        try:
            known = json.loads(head)
        except json.JSONDecodeError:
            raise ValueError(f"{self.path} holds no runs of an audit: name another checkpoint") from None
        if known != json.loads(json.dumps(dict(self.facts))):
            raise ValueError(f"{self.path} holds the runs of another audit ({known}): name another checkpoint")
        for line in lines:
            try:
                member, number, values = json.loads(line)
            except (json.JSONDecodeError, ValueError):
                break  # The last line of a killed audit may be half a line.
            self.runs[bool(member), int(number)] = np.array(values, dtype=np.float64)

    def keep(self, member: bool, number: int, values: FloatArray) -> None:
        """Keep one finished run, in the file at once."""
        self.runs[member, number] = values
        if self.path is None:
            return
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(dict(self.facts)) + "\n", encoding="utf-8")
        elif not self.path.read_bytes().endswith(b"\n"):
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n")
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([member, number, values.tolist()]) + "\n")

    def arm(self, member: bool, count: int) -> FloatArray:
        """Return the projections of the first ``count`` runs of one arm, ``(count, steps)``."""
        return np.stack([self.runs[member, number] for number in range(count)])

    def missing(self, count: int) -> list[tuple[bool, int]]:
        """Return the runs among the first ``count`` of both arms that are not finished, both arms in turn."""
        wanted = [(member, number) for number in range(count) for member in (True, False)]
        return [one for one in wanted if one not in self.runs]
