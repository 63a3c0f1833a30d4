"""A cell whose rows a test looks at: what it stands for does not matter."""

from fedassay.suites.results.cell import Cell

FACTS = {
    "run_id": "r",
    "suite": "s",
    "suite_version": "1",
    "federation": "main",
    "dataset": "d",
    "dataset_sha256": "",
    "model": "m",
    "defense": "d",
    "defense_version": "1",
    "control": False,
    "role": "attack",
    "attack": "a",
    "attack_version": "1",
    "observer": "answers",
    "seed": 0,
}


def toy_cell():
    return Cell(cell_id="c", facts=dict(FACTS))
