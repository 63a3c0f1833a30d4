"""Plan audits of mutants (mechanisms with a planted bug) and their correct versions, under the claim both state."""

import hashlib
import inspect
from collections.abc import Iterator

from ...defenses.controls import case as case_module
from ...defenses.controls import fault as fault_module
from ..config.resolve import ResolvedSuite, identity
from ..config.source import ConfigError
from ..config.tables.suite import Suite
from ..mutation.mutants import (
    CORRECT_CASE,
    MECHANISM,
    PAIR,
    TRANSFER,
    VERTICAL,
    MutantJob,
    chosen_mutants,
    class_of,
    known_mutants,
    versions,
)
from ..results.cell import Cell
from ..results.claims_file import PlannedClaim
from ..results.record import CORRECT

ESTIMATOR = "planned_event"
_DATA = {MECHANISM: ("none", "none"), TRANSFER: ("none", "none"), VERTICAL: ("digits", "split")}
"""Data set and model by kind; of all other kinds they are those of the federation of clients."""
Planned = tuple[MutantJob, tuple[PlannedClaim, ...]]


def plan_mutants(suite: ResolvedSuite, run_id: str) -> tuple[Planned, ...]:
    """Return one job per mutant (mechanism with a planted bug), with the claim that its broken and its correct version
    both state.

    Raises:
        ConfigError: for an unknown mutant, or a control that has no correct version to be compared with.
    """
    spec = suite.spec.mutants
    if spec is None:
        return ()
    chosen = chosen_mutants(spec)
    # Correct versions share alpha: the chance that any of them is refuted.
    share = suite.spec.alpha / len(chosen)
    return tuple(_planned(suite, run_id, name, kind, share) for name, kind in chosen.items())


def mutant_versions(suite: Suite) -> Iterator[str]:
    """Return the name and code version of every mutant of the suite, which enter the hash that identifies the run."""
    if suite.mutants is not None:
        for name in chosen_mutants(suite.mutants):
            yield f"{name} {_version(name)}"


def _planned(suite: ResolvedSuite, run_id: str, name: str, kind: str, share: float) -> Planned:
    spec = suite.spec.mutants
    if spec is None:
        raise ValueError("this suite has no [mutants] table, so no mutants can be planned")
    try:
        claim = versions(name).claim
    except ValueError as error:
        raise ConfigError(f"mutant {name} cannot be set up: {error}") from error
    stated = [
        PlannedClaim(defense=label, federation=f"{kind}s", control=control, claim=claim)
        # Stored labels: rows of earlier runs are compared by them.
        for label, control in ((name, True), (f"{name}{CORRECT}", False))
        if control is False or kind != CORRECT_CASE
    ]
    dataset, model = _DATA.get(kind, ("digits", "logistic"))
    configuration, version = [spec.model_dump(mode="json"), share, list(suite.seeds)], _version(name)
    cells = [
        Cell(
            cell_id=identity(mutant=name, control=one.control, version=version, configuration=configuration),
            facts={
                "run_id": run_id,
                "suite": suite.spec.name,
                "suite_version": suite.spec.version,
                "federation": one.federation,
                "dataset": dataset,
                "dataset_sha256": suite.digests.get(dataset, ""),
                "model": model,
                "defense": one.defense,
                "defense_version": version,
                "control": one.control,
                "seed": None,
                "role": "audit",
                "attack": ESTIMATOR,
                "attack_version": "1",
                "observer": str(claim.observer),
                "claim_id": claim.claim_id,
            },
        )
        for one in stated
    ]
    broken = cells[0] if len(cells) == 2 else None
    job = MutantJob(name=name, spec=spec, seeds=suite.seeds, alpha=share, broken=broken, correct=cells[-1])
    return job, tuple(stated)


def _version(name: str) -> str:
    """Version of a mutant's code: eight hexadecimal digits of a hash of its file and of the class of all mutants."""
    # The source text, not a number kept by hand: a changed bug must never reuse the rows of the old one.
    base = case_module if known_mutants()[name] in (PAIR, CORRECT_CASE) else fault_module
    file = inspect.getmodule(class_of(name)) or base
    source = inspect.getsource(file) + inspect.getsource(base)
    return hashlib.sha256(source.encode()).hexdigest()[:8]
