"""Recordings of a deployment: what one observer received in each round of a real training, in a folder of data only.

The folder holds ``recording.json`` (facts and checksums), one numpy archive per round, and, in its folder ``truth``,
which rows of a data set each client held. No attack gets the truth, and a recording without it can be attacked too.
"""

import hashlib
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..audit.observer import AGGREGATE, GLOBAL_MODELS, UPLOADS, Observer
from ..audit.output_file import SUM, check_inside, is_changed, parsed_json, with_checksum, write_atomically
from ..audit.parts import Spec, name_and_options
from .algorithms import KNOWN_ALGORITHMS, FedSGD, algorithm_from
from .data.files.readers import arrays_of
from .layout import Layout
from .message import Message
from .plan import Plan
from .recorder import RoundEvent

SCHEMA, HEADER, TRUTH = "recording-1", "recording.json", "truth"
Sends = Literal["models", "updates", "gradients"]
OBSERVERS = (UPLOADS, AGGREGATE, GLOBAL_MODELS)
Tensors = Mapping[str, Any] | Sequence[Any]
Flat = NDArray[np.float32]
_NAME = re.compile(r"[A-Za-z0-9_\-][A-Za-z0-9_.\-]{0,63}")


class MessageRecorder:
    """A writer of a recording, which a training loop of any library calls once per round.

    Example::

        facts = {"name": "fedavg", "learning_rate": 0.1, "local_steps": 1}
        recorder = MessageRecorder("recording", model, algorithm=facts)
        recorder.round(before, {"hospital_1": sent_1, "hospital_2": sent_2}, after, samples={"hospital_1": 8, ...})

    Args:
        folder: of the recording; it must hold no recording yet.
        model: the module, or its tensors by name, which gives the names, order and shapes of all tensors.
        algorithm: what the clients and the server do, as in a suite file: ``fedavg`` with the clients' learning rate
            and number of local steps, or ``fedsgd`` for gradients.
        sends: what a client's message holds: its ``"models"`` after training, the difference from the model that it
            received (``"updates"``), or ``"gradients"`` of the mean loss over its samples.
        observer: who receives what is recorded: ``"uploads"`` (each client's message), ``"aggregate"`` (their sum, as
            the server's model shows it) or ``"global_models"``.

    Raises:
        ValueError: a folder that is not empty, or an algorithm or another argument that does not fit.
    """

    def __init__(
        self,
        folder: str | Path,
        model: nn.Module | Mapping[str, Any],
        *,
        algorithm: Spec,
        sends: Sends = "models",
        observer: str = "uploads",
    ) -> None:
        self.folder, tensors = Path(folder), model.state_dict() if isinstance(model, nn.Module) else dict(model)
        if not tensors:
            raise ValueError("model must have at least one tensor, got none")
        trained = [name for name, _ in model.named_parameters()] if isinstance(model, nn.Module) else list(tensors)
        self._shapes = {name: tuple(np.shape(value)) for name, value in tensors.items()}
        # Statistics of batch norms have no gradient, and updates often leave them out.
        self._sent = list(tensors) if sends == "models" else trained
        self._facts: dict[str, Any] = {
            "schema": SCHEMA,
            "observer": observer,
            "sends": sends,
            "algorithm": algorithm,
            "tensors": {name: list(shape) for name, shape in self._shapes.items()},
            "sent": self._sent,
            "clients": [],
            "rounds": [],
        }
        _check_facts(self._facts, "MessageRecorder")
        held = [one.name for one in self.folder.iterdir()] if self.folder.is_dir() else []
        if [name for name in held if name != TRUTH]:
            raise ValueError(f"{self.folder} is not empty, and a recording is never written over: name another folder")
        self._write_header()

    @property
    def takes_messages(self) -> bool:
        """Whether the observer receives each client's message."""
        return bool(self._facts["observer"] == str(UPLOADS))

    def round(
        self,
        before: Tensors,
        messages: Mapping[str, Tensors],
        after: Tensors,
        *,
        samples: Mapping[str, int] | None = None,
        metrics: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        """Record one round.

        Args:
            before: the model that clients received: tensors by name, or in the order of the model's tensors.
            messages: what each client sent, by the client's name; must be empty unless the observer receives uploads.
            after: the server's model after the round.
            samples: how many samples each message was computed from, by client: those who took part in the round.
                Without messages it may be left out; all clients then count as taking part.
            metrics: further numbers that came with the messages, by client; no attack uses them.

        Raises:
            ValueError: a tensor that is missing or unknown, has another shape, or is NaN or infinite, with its name;
                messages that this observer does not receive; an unusable name of a client.
        """
        number, everything = len(self._facts["rounds"]), list(self._shapes)
        if bool(messages) != self.takes_messages:
            raise ValueError(
                f"round {number} must have messages if the observer receives uploads, and none if not; the observer is "
                f"{self._facts['observer']}, got {len(messages)} messages"
            )
        counts = {client: (samples or {}).get(client) for client in messages or samples or {}}
        for client, count in counts.items():
            _check_name(client)
            if not isinstance(count, int | np.integer) or count < 1:
                raise ValueError(f"samples of client {client} in round {number} must be a number >= 1, got {count!r}")
        arrays: dict[str, NDArray[Any]] = {
            "before": self._flat(f"before of round {number}", before, everything),
            "after": self._flat(f"after of round {number}", after, everything),
            "clients": np.array(list(counts), dtype=np.str_),
            "samples": np.array([int(count or 0) for count in counts.values()], dtype=np.int64),
            "metrics": np.array(json.dumps({client: dict(found) for client, found in (metrics or {}).items()})),
        }
        if messages:
            rows = [
                self._flat(f"message of {one} in round {number}", sent, self._sent) for one, sent in messages.items()
            ]
            arrays["messages"] = np.stack(rows)
        content = io.BytesIO()
        np.savez(content, **arrays)  # type: ignore[arg-type]
        _write(self.folder, _file(number), content.getvalue())
        known = self._facts["clients"]
        self._facts["clients"] = [*known, *(client for client in counts if client not in known)]
        self._facts["rounds"].append(hashlib.sha256(content.getvalue()).hexdigest())
        self._write_header()

    def _flat(self, what: str, given: Tensors, names: list[str]) -> Flat:
        if not isinstance(given, Mapping):
            if len(given) != len(names):
                raise ValueError(f"{what} must hold {len(names)} tensors ({', '.join(names)}), got {len(given)}")
            given = dict(zip(names, given, strict=True))
        if lacking := [name for name in names if name not in given]:
            raise ValueError(f"{what} lacks the tensor {lacking[0]}")
        # Buffers may come with gradients and updates, and are not kept.
        if unknown := [name for name in given if name not in self._shapes]:
            raise ValueError(f"{what} holds {unknown[0]!r}, which is no tensor of the model ({', '.join(names)})")
        parts = []
        for name in names:
            value = torch.as_tensor(given[name]).detach().cpu().to(torch.float32)
            if tuple(value.shape) != self._shapes[name]:
                raise ValueError(
                    f"{what}: tensor {name} must have shape {self._shapes[name]}, got {tuple(value.shape)}"
                )
            if not bool(value.isfinite().all()):
                raise ValueError(f"{what}: tensor {name} must be finite, got NaN or infinity")
            parts.append(value.flatten())
        return cast(Flat, torch.cat(parts).numpy())

    def _write_header(self) -> None:
        _write(self.folder, HEADER, json.dumps(with_checksum(self._facts), indent=1).encode())


def record_rows(folder: str | Path, client: str, rows: Iterable[int]) -> None:
    """Write into a recording's folder which training rows of a data set a client holds, as the truth for scores.

    ``client``: its name in the recording; ``rows``: their indices, >= 0, none twice. Clients in other processes may
    call it at any time; writing the same rows again changes nothing. Raises ValueError for other rows.
    """
    held = [int(row) for row in rows]
    if not held or min(held) < 0 or len(set(held)) < len(held):
        raise ValueError(f"rows of client {client} must be different indices >= 0, at least one, got {held!r:.80}")
    name = f"{TRUTH}/{_check_name(client)}.json"
    if (path := Path(folder) / name).exists() and _json(path).get("rows") != held:
        raise ValueError(f"{path} holds other rows of client {client}: record another training into another folder")
    content = with_checksum({"schema": SCHEMA, "client": client, "rows": held})
    _write(Path(folder), name, json.dumps(content).encode())


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedRound:
    """One round of a recording, each model and message as one flat vector.

    ``messages``: (n, d), one row per client in ``clients``, None for an observer without messages; ``samples``: (n,).
    Without messages ``clients`` may be empty: it is not known who took part.
    """

    before: Tensor
    after: Tensor
    messages: Tensor | None
    clients: tuple[str, ...]
    samples: tuple[int, ...]
    metrics: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, kw_only=True, eq=False)
class MessageRecording:
    """A recording that was read from its folder; rounds are read when they are needed.

    Args:
        shapes: the shape of every recorded tensor, by name, in their order; ``sent``: the names of those in a message.
        clients: the names of all clients, of which client i of attacks is the i-th.
        truth: for each client the rows of the data set that it held, ``(n,)``; None where this is not recorded.
        digest: SHA-256 of everything in the folder, the truth included.
    """

    folder: Path
    observer: Observer
    sends: Sends
    algorithm: Spec
    shapes: Mapping[str, tuple[int, ...]]
    sent: tuple[str, ...]
    clients: tuple[str, ...]
    sums: tuple[str, ...]
    truth: tuple[Tensor, ...] | None
    digest: str = field(default="")

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """Read a recording. Raises ValueError, with the file, for one that is missing, incomplete, changed or of
        another version.
        """
        place = Path(folder)
        facts = _json(place / HEADER)
        if facts.get("schema") != SCHEMA:
            raise ValueError(
                f"{place / HEADER} has schema {facts.get('schema')!r}, and this version of fedassay reads {SCHEMA}"
            )
        if is_changed(facts):
            raise ValueError(f"{place / HEADER} differs from its checksum: it was changed or damaged")
        _check_facts(facts, str(place / HEADER))
        if not facts["rounds"]:
            raise ValueError(f"{place} holds no round: call MessageRecorder.round once per round of the training")
        held = _truth(place / TRUTH)
        names = tuple(facts["clients"]) or tuple(sorted(held))
        if held and (lacking := sorted(set(names) - set(held))):
            raise ValueError(
                f"{place / TRUTH} must name the rows of every client of the recording, but lacks {lacking[0]}"
            )
        content = json.dumps([facts[SUM], *(held[name].tolist() for name in names if held)])
        return cls(
            folder=place,
            observer=Observer.parse(facts["observer"]),
            sends=facts["sends"],
            algorithm=facts["algorithm"],
            shapes={name: tuple(shape) for name, shape in facts["tensors"].items()},
            sent=tuple(facts["sent"]),
            clients=names,
            sums=tuple(facts["rounds"]),
            truth=tuple(held[name] for name in names) if held else None,
            digest=hashlib.sha256(content.encode()).hexdigest(),
        )

    def rounds(self) -> Iterator[RecordedRound]:
        """Read round after round. Raises ValueError for a file that is missing, changed or does not fit the facts."""
        for number, digest in enumerate(self.sums):
            path = self.folder / _file(number)
            if not path.is_file():
                raise ValueError(f"{path} is missing, so round {number} cannot be read")
            if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                raise ValueError(f"{path} differs from its checksum: it was changed, damaged or cut off")
            yield self._round(path)

    def _round(self, path: Path) -> RecordedRound:
        found, sizes = arrays_of(path, lambda name: True), [self._size(self.shapes), self._size(self.sent)]
        clients = tuple(map(str, self._array(found, "clients", path, 1)))
        wanted: dict[str, tuple[int, ...]] = {"before": (sizes[0],), "after": (sizes[0],), "samples": (len(clients),)}
        wanted |= {"messages": (len(clients), sizes[1])} if self.observer == UPLOADS else {}
        for name, shape in wanted.items():
            array = self._array(found, name, path, len(shape))
            if array.shape != shape or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
                raise ValueError(f"{path}: array {name} must hold finite numbers of shape {shape}, got {array.shape}")
        if unknown := set(clients) - set(self.clients):
            raise ValueError(f"{path} names the client {min(unknown)}, which {HEADER} does not list")
        tensors = {name: torch.from_numpy(found[name]) for name in wanted if name != "samples"}
        return RecordedRound(
            before=tensors["before"],
            after=tensors["after"],
            messages=tensors.get("messages"),
            clients=clients,
            samples=tuple(int(one) for one in self._array(found, "samples", path, 1)),
            metrics=parsed_json(str(self._array(found, "metrics", path, 0))),
        )

    def _array(self, found: Mapping[str, Any], name: str, path: Path, ndim: int) -> NDArray[Any]:
        array = found.get(name)
        if array is None or array.ndim != ndim:
            raise ValueError(f"{path} must hold the array {name} of {ndim} dimensions, got {nothing_or(array)}")
        return cast(NDArray[Any], array)

    def _size(self, names: Iterable[str]) -> int:
        return sum(math.prod(self.shapes[name]) for name in names)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of samples of each client, as its messages and the truth state it.

        Raises ValueError where they state different numbers.
        """
        rows = self.truth or ()
        known = dict(zip(self.clients, map(len, rows), strict=False))
        for number, one in enumerate(self.rounds()):
            for client, count in zip(one.clients, one.samples, strict=True):
                if known.setdefault(client, count) != count:
                    raise ValueError(
                        f"{self.folder}: the message of client {client} in round {number} is from {count} samples, but "
                        f"{'its truth names' if rows else 'an earlier one is from'} {known[client]}: attacks need one "
                        "number for all rounds"
                    )
        return tuple(known[client] for client in self.clients)

    @property
    def cohort(self) -> Spec:
        """Which clients took part in a round, as in a suite file: all, a fixed number, or the mean share."""
        sent = [len(one.clients) or len(self.clients) for one in self.rounds()]
        if min(sent) == len(self.clients):
            return "full"
        return (
            {"fixed_size": sent[0]} if len(set(sent)) == 1 else {"poisson": sum(sent) / len(sent) / len(self.clients)}
        )

    def unused(self, layout: Layout) -> list[str]:
        """Return the recorded tensors that a model does not train, such as statistics of batch norms.

        Raises ValueError for a model with a tensor that the recording lacks, or has in another shape.
        """
        for name, shape in zip(layout.names, layout.shapes, strict=True):
            if name not in self.sent or self.shapes[name] != shape:
                raise ValueError(
                    f"the model's tensor {name} has shape {shape}, and messages of the recording have "
                    f"{self.shapes[name] if name in self.sent else 'no tensor of this name'}: give the model that was "
                    f"trained; its tensors are {', '.join(self.sent)}"
                )
        return [name for name in self.shapes if name not in layout.names]

    def events(self, plan: Plan) -> Iterator[RoundEvent]:
        """Yield every round as recorders get it from the engine, with updates (what the server adds) as reports.

        Each client's lot is all of its samples in each step.
        """
        self.unused(plan.layout)
        number = {client: place for place, client in enumerate(self.clients)}
        masks = [torch.ones(1, size, dtype=torch.bool) for size in plan.sizes]
        for turn, one in enumerate(self.rounds()):
            before, after = (self._vector(flat, self.shapes, plan.layout) for flat in (one.before, one.after))
            order = sorted(range(len(one.clients)), key=lambda row: number[one.clients[row]])
            came = senders = tuple(number[one.clients[row]] for row in order)
            values = before.new_zeros(0, plan.layout.dim)
            if one.messages is not None:
                sent = self._vector(one.messages[order], self.sent, plan.layout)
                values = {"models": sent - before, "updates": sent, "gradients": -sent}[self.sends]
            else:
                senders = ()
            present = torch.ones(1, len(senders), dtype=torch.bool)
            reports = Message(values=values.unsqueeze(0), present=present, senders=senders)
            cohort = torch.zeros(1, plan.clients, dtype=torch.bool)
            cohort[0, list(came) or slice(None)] = True
            yield RoundEvent(
                round=turn,
                broadcast=before.unsqueeze(0),
                cohort=cohort,
                reports=reports,
                received=reports,
                aggregate=plan.algorithm.aggregate_between(before, after).unsqueeze(0),
                model=after.unsqueeze(0),
                lots={
                    int(client): [masks[client]] * plan.algorithm.local_steps
                    for client in cohort[0].nonzero().flatten().tolist()
                },
            )

    def _vector(self, flat: Tensor, names: Iterable[str], layout: Layout) -> Tensor:
        """The tensors that a model trains, in its order; ``flat (..., d)``: the recorded tensors of these names."""
        names = list(names)
        parts = torch.split(flat, [math.prod(self.shapes[name]) for name in names], dim=-1)
        found = dict(zip(names, parts, strict=True))
        return layout.flatten({one: found[one].reshape(*flat.shape[:-1], *self.shapes[one]) for one in layout.names})


def nothing_or(array: Any) -> str:
    """Return the words of an error message for an array, or for none."""
    return "none" if array is None else f"one of shape {array.shape}"


def _write(folder: Path, name: str, content: bytes) -> None:
    check_inside(folder / name, folder)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / name, content)


def _file(number: int) -> str:
    return f"round{number:06d}.npz"


def _check_name(client: object) -> str:
    if not isinstance(client, str) or not _NAME.fullmatch(client):
        raise ValueError(
            f"a client's name must be 1 to 64 letters, digits, _, - and dots that are not first, got {client!r}"
        )
    return client


def _check_facts(facts: Mapping[str, Any], where: str) -> None:
    """Raise ValueError for facts that do not fit together."""
    kinds = {"algorithm": dict | str, "tensors": dict, "sent": list, "clients": list, "rounds": list}
    if wrong := [key for key, kind in kinds.items() if not isinstance(facts.get(key), kind)]:
        raise ValueError(f"{where}: {wrong[0]} is missing or has a wrong type, got {facts.get(wrong[0])!r:.80}")
    known = [str(one) for one in OBSERVERS]
    if facts["observer"] not in known:
        raise ValueError(f"{where}: observer must be one of {', '.join(known)}, got {facts['observer']!r}")
    if facts["sends"] not in get_args(Sends):
        raise ValueError(f"{where}: sends must be one of {', '.join(get_args(Sends))}, got {facts['sends']!r}")
    shapes = facts["tensors"].values()
    if not all(isinstance(shape, list) and all(type(one) is int and one >= 0 for one in shape) for shape in shapes):
        raise ValueError(f"{where}: tensors must hold a shape of whole numbers for each name")
    if not set(facts["sent"]) <= set(facts["tensors"]):
        raise ValueError(f"{where}: sent must name tensors of the model, got {facts['sent']!r:.80}")
    # A recording is data, and must not name code that would be imported.
    if (name := name_and_options("algorithm", facts["algorithm"])[0]) not in KNOWN_ALGORITHMS:
        raise ValueError(f"{where}: algorithm must be one of {', '.join(KNOWN_ALGORITHMS)}, got {name!r}")
    algorithm = algorithm_from(facts["algorithm"])
    if isinstance(algorithm, FedSGD) != (facts["sends"] == "gradients"):
        raise ValueError(
            f"{where}: clients of fedsgd send gradients, and those of other algorithms models or updates, got sends "
            f"{facts['sends']!r} with algorithm {facts['algorithm']!r}"
        )
    for client in facts["clients"]:
        _check_name(client)


def _truth(place: Path) -> dict[str, Tensor]:
    held = {}
    for path in sorted(place.glob("*.json")) if place.is_dir() else ():
        found = _json(path)
        rows = found.get("rows")
        if is_changed(found) or not isinstance(rows, list) or not all(type(row) is int for row in rows):
            raise ValueError(f"{path} holds no rows of a client, or differs from its checksum")
        held[path.stem] = torch.tensor(rows, dtype=torch.int64)
    return held


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path} is missing, so {path.parent} is no recording of fedassay")
    try:
        found = parsed_json(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(found).__name__}")
    return found
