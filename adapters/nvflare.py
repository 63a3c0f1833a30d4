"""Training and privacy filters of NVFlare as a system to audit: clients train one after the other in this process, and
their results pass through filters and aggregation as NVFlare calls them.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..audit.claim import Adjacency, Unit
from ..audit.supplied.given import check_whole
from ..fl.streams import seeded
from .loop_system import Loop, _Watches
from .unwatchable import Unwatchable, check_call

try:
    from nvflare.apis.event_type import EventType
    from nvflare.apis.fl_context import FLContext
    from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
    from nvflare.app_common.filters.svt_privacy import SVTPrivacy
    from nvflare.app_common.utils.fl_model_utils import FLModelUtils
    from nvflare.app_common.workflows.base_fedavg import BaseFedAvg
except ImportError as error:
    raise ImportError("fedassay.adapters.nvflare needs NVFlare: pip install nvflare") from error

Params = dict[str, Any]
"""Arrays of a model by name."""


class Training(Loop):
    """Rounds of NVFlare that can be run on neighbouring data, and with and without one client.

    Example::

        def fit(model, data):  # as between flare.receive() and flare.send(...)
            net.load_state_dict({name: torch.from_numpy(one) for name, one in model.params.items()})
            ...
            return FLModel(params={name: one.numpy() for name, one in net.state_dict().items()})


        filters = lambda: [ClipAndNoise()]
        system = Training(fit, data, start, filters=filters, rounds=5, noise_multiplier=1, clip_norm=0.5, delta=1e-5)
        print(*system.watch().lines(), sep="\\n")

    All clients take part in each round. A noised sum is the aggregated change of the model times the number of clients;
    its noise is what filters and aggregation make of changes that are zero, by equal draws. ``noise_multiplier`` is
    that of this sum: with noise of standard deviation s in each of n equally weighted clients, ``s * sqrt(n)`` over the
    clip norm.

    Args:
        fit: ``fit(model, data)`` trains the received ``FLModel`` on the data of one client, and returns the ``FLModel``
            that the client sends: new parameters, or their change (``ParamsType.DIFF``).
        clients: the data of each client.
        start: arrays of the first model, by name.
        rounds: that are run, >= 1.
        filters: makes the task result filters of one client, in their order; each client has its own.
        aggregate: of a list of results, by default that of ``FedAvg``: weighted by ``NUM_STEPS_CURRENT_ROUND``.
        steps: rounds that were accounted, by default all.
        others: as in ``Loop``.

    Raises:
        TypeError: for clients without indices, and other types than these.
        ValueError: as ``Loop``, and for add/remove, because ``FedAvg`` divides by the number of clients.
    """

    weighted = True

    def __init__(
        self,
        fit: Callable[[Any, Any], Any],
        clients: Any,
        start: Mapping[str, Any],
        *,
        rounds: int,
        filters: Callable[[], Sequence[Any]] = list,
        aggregate: Callable[[list[Any]], Any] = BaseFedAvg.aggregate_fn,
        steps: int | None = None,
        unit: Unit | str = Unit.CLIENT,
        **others: Any,
    ) -> None:
        check_whole("rounds", rounds, least=1)
        if not callable(filters) or not callable(aggregate) or not isinstance(start, Mapping):
            given = f"{filters!r:.60}, {aggregate!r:.60} and {start!r:.60}"
            raise TypeError(f"filters and aggregate must be functions, and start arrays by name, got {given}")
        if Adjacency(others.get("adjacency", Adjacency.ZERO_OUT)) is Adjacency.ADD_REMOVE:
            raise ValueError(
                "adjacency must be zero_out or replace_one, got add_remove: the mean is divided by the number of "
                "clients, and noise grows with it"
            )
        check_call("fit", fit, [None, None], what="two arguments, model and data")

        def run(given: Any, made: _Watches) -> object:
            params = {name: np.array(one) for name, one in start.items()}
            watch, context = made({name: one.shape for name, one in params.items()}), FLContext()
            sites = [_Site(number, filters(), context) for number in range(len(given))]
            for turn in range(rounds):
                results, noise = [], []
                for number, site in enumerate(sites):
                    result = fit(FLModel(params=copy.deepcopy(params), current_round=turn), given[number])
                    change = _change(result, params)
                    watch.lot([number], {name: one[None] for name, one in change.items()})
                    zeros = {name: np.zeros_like(one) for name, one in change.items()}
                    noise.append(site.bare(_with(result, zeros, params), context))
                    results.append(site.sent(_with(result, change, params), context))
                bare = _mean(aggregate, noise, params, checked=not turn)
                moved = _change(aggregate(results), params)
                if not turn and not any(one.any() for one in bare.values()):
                    _check_repeats(fit, FLModel(params=params, current_round=turn), given[0])
                sums = {name: one * len(sites) for name, one in moved.items()}
                watch.release({name: one - len(sites) * bare[name] for name, one in sums.items()}, sums)
                params = {name: one + (sums[name] / len(sites)).astype(one.dtype) for name, one in params.items()}
            return params

        super().__init__(run, clients, rate=1.0, steps=rounds if steps is None else steps, unit=unit, **others)


class _Site:
    """The filters of one client."""

    def __init__(self, number: int, filters: Sequence[Any], context: Any) -> None:
        for one in filters:
            if isinstance(one, SVTPrivacy):
                raise Unwatchable("SVTPrivacy cannot be watched, because its noise is not Gaussian: audit it alone")
            one.handle_event(EventType.START_RUN, context)
        self._name, self._filters, self._checked = f"site-{number + 1}", list(filters), False

    def sent(self, result: Any, context: Any) -> Any:
        """What arrives at the server."""
        return self._through(self._filters, result, context)

    def bare(self, result: Any, context: Any) -> Any:
        """What would arrive, by equal draws and without a trace in filters and generators."""

        def arrived() -> Any:
            with seeded(None):
                return self._through(copy.deepcopy(self._filters), copy.deepcopy(result), context)

        found = arrived()
        if not self._checked:
            again = arrived()
            if any(not np.array_equal(one, again.params[name]) for name, one in found.params.items()):
                raise Unwatchable("two calls of the filters with equal draws differ: their noise cannot be seeded")
            self._checked = True
        return found

    def _through(self, filters: Sequence[Any], result: Any, context: Any) -> Any:
        shareable = FLModelUtils.to_shareable(result)
        for one in filters:
            shareable = one.process(shareable, context)
        found = FLModelUtils.from_shareable(shareable)
        found.meta["client_name"] = self._name
        return found


def _mean(aggregate: Callable[[list[Any]], Any], noise: list[Any], params: Params, *, checked: bool) -> Params:
    """The aggregated change of results, by equal draws; ``checked``: that a further call makes the same."""
    found = []
    for _ in range(2 if checked else 1):
        with seeded(None):
            found.append(_change(aggregate(noise), params))
    if any(not np.array_equal(one, found[-1][name]) for name, one in found[0].items()):
        raise Unwatchable(
            "two calls of aggregate with equal draws differ: it keeps a state, such as momentum, or no seed reaches "
            "its noise"
        )
    return found[0]


def _check_repeats(fit: Callable[[Any, Any], Any], model: Any, data: Any) -> None:
    """Raise Unwatchable unless training draws nothing, where neither filters nor aggregation add noise."""
    found = []
    for seed in range(2):
        with seeded(seed):
            found.append(fit(copy.deepcopy(model), data).params)
    if any(not np.array_equal(one, found[1][name]) for name, one in found[0].items()):
        raise Unwatchable(
            "neither filters nor aggregation add noise, and fit draws random numbers, which may be noise or lots: move "
            "clip and noise into a filter"
        )


def _change(result: Any, params: Params) -> Params:
    """The change of the parameters that a result states; Unwatchable for other arrays than those of the model."""
    found = dict(getattr(result, "params", None) or {})
    shapes, wanted = ({name: np.shape(one) for name, one in of.items()} for of in (found, params))
    if shapes != wanted:
        raise Unwatchable(f"a result must hold arrays of the names and shapes {wanted}, got {shapes}")
    if result.params_type is ParamsType.DIFF:
        return {name: np.array(one) for name, one in found.items()}
    return {name: np.asarray(one) - params[name] for name, one in found.items()}


def _with(result: Any, change: Params, params: Params) -> Any:
    """A result with other parameters, which it holds as a change or as a whole, as before."""
    made, whole = copy.copy(result), result.params_type is not ParamsType.DIFF
    made.params = {name: params[name] + one if whole else one for name, one in change.items()}
    made.meta = dict(result.meta or {})
    return made
