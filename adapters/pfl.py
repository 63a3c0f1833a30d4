"""A simulation in pfl as a system to audit: what each user sends is seen before all postprocessors, and each sum before
and after the noise.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import index
from typing import Any

import torch
from torch import Tensor, nn

from ..audit.claim import Adjacency, Unit
from ..fl.recording import MessageRecorder
from ..fl.streams import seeded
from .logged_data import LoggedData
from .loop_system import Loop, _PlayedWatch, _Watches
from .unwatchable import Unwatchable, check_call

try:
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.callback.base import TrainingProcessCallback
    from pfl.common_types import Population
    from pfl.internal.ops import get_ops
    from pfl.metrics import Metrics
    from pfl.postprocessor.base import Postprocessor
    from pfl.privacy.ftrl_mechanism import BandedMatrixFactorizationMechanism
    from pfl.privacy.joint_mechanism import JointMechanism
    from pfl.privacy.laplace_mechanism import LaplaceMechanism
except ImportError as error:
    raise ImportError("fedassay.adapters.pfl needs pfl and PyTorch: pip install pfl") from error

_REFUSED = {
    BandedMatrixFactorizationMechanism: "its noise is correlated between steps",
    JointMechanism: "its parts have clip norms and noise of their own",
    LaplaceMechanism: "its noise is not Gaussian",
}


class Training(Loop):
    """A simulation in pfl that can be run on neighbouring data, and with and without one user.

    Example::

        def train(users):
            cohorts = FederatedDataset(lambda user: Dataset(users[user], user_id=str(user)), sampler)
            mechanism = CentrallyAppliedPrivacyMechanism(GaussianMechanism(0.5, 1.0))
            backend = SimulatedBackend(cohorts, cohorts, postprocessors=[WeightByUser(), mechanism])
            return FederatedAveraging().run(parameters, backend, model, ...)


        system = Training(train, users, noise_multiplier=1.0, clip_norm=0.5, rate=1.0, steps=10, delta=1e-5)
        print(*system.watch().lines(), sep="\\n")

    A noised sum is the sum of what all users of a cohort send, before it is averaged. Noise that users add themselves
    counts as its noise: it is what postprocessors make of statistics that are zero, by equal draws.

    Args:
        train: ``train(users)`` makes a model of PyTorch and trains it with a ``SimulatedBackend``.
        users: the data of each user. ``train`` must read from the users that it is given, and each user's
            ``Dataset.user_id`` must be its index in them.
        unit: of the claim, by default one client, whose contribution is all of a user's data.
        others: as in ``Loop``; ``rate``, ``steps`` and ``epsilon`` are those that the accountant was given.

    Raises:
        TypeError: for users without indices.
        ValueError: as ``Loop``, and for add/remove with rate 1: in a cohort of fixed size, another user takes the place
            of one that is missing.
    """

    weighted = True

    def __init__(
        self, train: Callable[[Any], Any], users: Any, *, unit: Unit | str = Unit.CLIENT, **others: Any
    ) -> None:
        if others.get("rate") == 1 and Adjacency(others.get("adjacency", Adjacency.ZERO_OUT)) is Adjacency.ADD_REMOVE:
            raise ValueError(
                "adjacency must be zero_out or replace_one where rate is 1, got add_remove: in a cohort of fixed size, "
                "another user takes the place of one that is missing"
            )
        if not callable(train):
            raise TypeError(f"train must be a function train(users), got {train!r}")
        check_call("train", train, [users], what="one argument, the users")

        def run(given: Any, made: _Watches) -> object:
            with _gathering(made, given):
                returned = train(given)
            if not made.watches:
                raise Unwatchable("no cohort was trained: train must use a SimulatedBackend of pfl")
            return _modules(returned)

        super().__init__(run, users, unit=unit, **others)


@contextmanager
def _gathering(made: _Watches, users: LoggedData) -> Iterator[None]:
    """Have every cohort that is trained inside the context watched."""
    original, watches = SimulatedBackend.async_gather_results, dict[nn.Module, _PlayedWatch]()

    async def gather(backend: Any, model: Any, training_algorithm: Any, *, central_context: Any) -> Any:
        given = {"training_algorithm": training_algorithm, "central_context": central_context}
        if central_context.population != Population.TRAIN:
            return await original(backend, model, **given)
        if (count := get_ops().distributed.world_size) > 1:
            raise Unwatchable(f"this is one of {count} processes that train together: watch one process alone")
        module = getattr(model, "pytorch_model", None)
        if not isinstance(module, nn.Module):
            raise Unwatchable(f"only models of PyTorch can be watched, got {type(model).__name__}")
        if module not in watches:
            watches[module] = made(module)
        parts = backend._postprocessors
        first = _First(watches[module], parts, users)
        backend._postprocessors = [first, *parts, _Last(first)]
        try:
            return await original(backend, model, **given)
        finally:
            backend._postprocessors = parts

    SimulatedBackend.async_gather_results = gather
    try:
        yield
    finally:
        SimulatedBackend.async_gather_results = original


class _First(Postprocessor):  # type: ignore[misc]
    """Sees what each user sends before all other postprocessors, and a sum after all of them, for one cohort."""

    def __init__(self, watch: _PlayedWatch, parts: list[Any], users: LoggedData) -> None:
        for part in parts:
            mechanism = getattr(part, "underlying_mechanism", part)
            for kind, reason in _REFUSED.items():
                if isinstance(mechanism, kind):
                    words = f"{type(mechanism).__name__} cannot be watched, because {reason}"
                    raise Unwatchable(f"{words}: audit the mechanism alone, as a function")
        self._watch, self._parts, self._users = watch, parts, users
        self.bare: dict[str, Tensor] = {}
        self.total: dict[str, Tensor] = {}
        # An empty cohort computes no update.
        watch.lot([], torch.zeros(0, watch.layout.dim))

    def postprocess_one_user(self, *, stats: Any, user_context: Any) -> tuple[Any, Any]:
        rows = {name: one[None] for name, one in self.of_model(stats).items()}
        number = _number(user_context.user_id)
        if (read := self._users.last(self._users.unread)) and number not in read:
            raise Unwatchable(
                f"user_id of a Dataset is {number}, and its data are those of user {read[-1]}: use one index"
            )
        self._watch.lot([number], rows)
        bare = self._bare(stats, user_context)
        if not self.bare:
            again = self._bare(stats, user_context)
            if any(not torch.equal(one, again[name]) for name, one in bare.items()):
                raise Unwatchable("what a user adds differs between two calls with equal draws: it cannot be seeded")
        self.bare = {name: self.bare.get(name, 0) + one for name, one in bare.items()}
        return stats, Metrics()

    def postprocess_server(self, *, stats: Any, central_context: Any, aggregate_metrics: Any) -> tuple[Any, Any]:
        self._watch.release(self.total, self.of_model(stats))
        return stats, Metrics()

    def _bare(self, stats: Any, user_context: Any) -> Mapping[str, Tensor]:
        """What a user would send if its statistics were zero, by equal draws; parts and generators stay as they are."""
        sent = stats.apply_elementwise(torch.zeros_like)
        with seeded(None):
            for part in copy.deepcopy(self._parts):
                sent, _ = part.postprocess_one_user(stats=sent, user_context=user_context)
        return self.of_model(sent)

    def of_model(self, stats: Any) -> Mapping[str, Tensor]:
        """The tensors of statistics, by name; Unwatchable for others than those of the model."""
        names, wanted = list(stats.keys()), self._watch.layout.names
        if set(names) != set(wanted):
            others = ", ".join(sorted(set(names) ^ set(wanted)))
            raise Unwatchable(f"what users send must be the tensors of the model, and differs from them by {others}")
        return dict(stats.items())


class _Last(Postprocessor):  # type: ignore[misc]
    """Sees a sum before all other postprocessors, without the noise that users added."""

    def __init__(self, first: _First) -> None:
        self._first = first

    def postprocess_server(self, *, stats: Any, central_context: Any, aggregate_metrics: Any) -> tuple[Any, Any]:
        found = self._first.of_model(stats)
        self._first.total = {name: one - self._first.bare[name] for name, one in found.items()}
        return stats, Metrics()


class RecordsMessages(Postprocessor, TrainingProcessCallback):  # type: ignore[misc]
    """Records what the server of a simulation receives, so that it can be attacked.

    It is the last of the postprocessors, and a callback. Users' names in the recording are ``user_`` and their
    ``user_id``; nothing of the simulation changes.

    Args:
        recorder: of the ``module``, with ``sends="updates"``.
        module: of the model that is trained.
    """

    def __init__(self, recorder: MessageRecorder, module: nn.Module) -> None:
        self._recorder, self._module = recorder, module
        self._before, self._sent, self._samples = copy.deepcopy(module.state_dict()), dict[str, Any](), dict[str, int]()

    def postprocess_one_user(self, *, stats: Any, user_context: Any) -> tuple[Any, Any]:
        name = f"user_{user_context.user_id}"
        self._sent[name] = {tensor: one.clone() for tensor, one in stats.items()}
        self._samples[name] = user_context.num_datapoints
        return stats, Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Any, model: Any, *, central_iteration: int
    ) -> tuple[bool, Any]:
        after = copy.deepcopy(self._module.state_dict())
        self._recorder.round(self._before, self._sent, after, samples=self._samples)
        self._before, self._sent, self._samples = after, {}, {}
        return False, Metrics()


def _number(user: Any) -> int:
    try:
        return int(user) if isinstance(user, str) else index(user)
    except (TypeError, ValueError):
        raise Unwatchable(f"user_id of each Dataset must be the user's index in the data, got {user!r}") from None


def _modules(found: object) -> object:
    """What ``train`` returned, with modules in place of pfl's models."""
    if isinstance(found, list | tuple):
        return [_modules(one) for one in found]
    return getattr(found, "pytorch_model", found)
