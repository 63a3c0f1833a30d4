"""Define the command ``epsilon``, which computes the epsilons of a federation or of an accountant's saved history."""

import json as writer
import logging
import pickle
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from .console import print_lines
from .errors import reported_errors

_option = typer.Option
_STATES = ("privacy_accountant_state_dict", "accountant", "history")
"""Keys that lead to the history in a checkpoint, or in an accountant's state."""
_ADJACENCY = "add_remove, replace_one or zero_out; by default add_remove, or replace_one where add_remove cannot hold."
_TRUST = "Who adds noise: central (the server), local (each client) or distributed (each client, to a secure sum)."
_HISTORY = "Instead of the numbers: a saved accountant, or a checkpoint of Opacus (JSON or torch.save)."
Number = float | None


def epsilon(
    delta: Annotated[float, _option(help="Delta of every epsilon.")],
    noise_multiplier: Annotated[
        Number,
        _option(help="Noise multiplier (noise standard deviation / clip norm) of the sum, or of each client."),
    ] = None,
    rounds: Annotated[int, _option(help="Rounds of the training.")] = 1,
    clients: Annotated[int, _option(help="All clients.")] = 1,
    cohort: Annotated[Number, _option(help="Number of clients that take part in a round; by default all.")] = None,
    local_steps: Annotated[int, _option(help="Number of local steps of a client in a round.")] = 1,
    records: Annotated[
        int | None, _option(help="Number of records of a client, if it clips each record (DP-SGD).")
    ] = None,
    lot: Annotated[Number, _option(help="Number of records that a local step draws; by default all.")] = None,
    unit: Annotated[str | None, _option(help="Print this unit alone: sample or client.")] = None,
    adjacency: Annotated[str | None, _option(help=_ADJACENCY)] = None,
    trust: Annotated[str, _option(help=_TRUST)] = "central",
    drawing: Annotated[
        str, _option(help="How clients and records are drawn: poisson, fixed_size or epoch.")
    ] = "poisson",
    participations: Annotated[
        int | None, _option(help="Largest number of rounds in which one client takes part; by default all.")
    ] = None,
    history: Annotated[Path | None, _option(metavar="FILE", help=_HISTORY)] = None,
    json: Annotated[bool, _option("--json", help="Print JSON.")] = False,
) -> None:
    """Compute epsilon of a federation by unit and adversary, beside other ways of counting and what each gets wrong."""
    given: dict[str, Any] = {name: value for name, value in locals().items() if name not in ("json", "history")}
    logging.getLogger("absl").disabled = True  # A Renyi order that does not converge is left out, which is valid.
    with reported_errors():
        from ..defenses.accounting.calculator import epsilon as accounted
        from ..suites.config.source import config_errors

        with config_errors():
            found = accounted(**given, history=None if history is None else read_history(history))
        print_lines(*([writer.dumps(asdict(found))] if json else found.lines()))


def read_history(path: Path) -> list[Any]:
    """Read an accountant's history of (noise multiplier, sampling rate, steps) from JSON or a file of ``torch.save``.

    Nothing in the file is run. Raises ValueError for a file that is neither, or holds no history.
    """
    try:
        if zipfile.is_zipfile(path):
            import torch

            found = torch.load(path, map_location="cpu", weights_only=True)
        else:
            found = writer.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError, RuntimeError, pickle.UnpicklingError):
        # The libraries' own messages are long, and one of them advises to run what is in the file.
        raise ValueError(f"{path} must be JSON, or a file of torch.save that holds data alone") from None
    for key in _STATES:
        found = found[key] if isinstance(found, dict) and key in found else found
    if not isinstance(found, list):
        raise ValueError(f"{path} must hold a history, a list of (noise multiplier, sampling rate, steps)")
    return found
