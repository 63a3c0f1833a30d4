"""What every row of one cell states: a test names only what it is about."""

from fedassay.suites.results.cell import Cell

FACTS = {
    "run_id": "r",
    "suite": "s",
    "suite_version": "1",
    "federation": "main",
    "dataset": "digits",
    "dataset_sha256": "0" * 64,
    "model": "logistic",
    "defense": "none",
    "defense_version": "1",
    "role": "attack",
    "attack": "loss",
    "attack_version": "1",
}
UTILITY = FACTS | {"role": "utility", "attack": "training", "metric": "accuracy", "value": 0.5}


def toy_cell(**facts):
    return Cell(cell_id="c", facts=FACTS | {"seed": 0} | facts)
