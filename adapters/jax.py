"""A training in JAX as a system to audit: its loss reports the gradient of each record, and its noise each noised sum,
also inside of compiled functions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .loop_system import Loop, _PlayedWatch, _Watches
from .unwatchable import Unwatchable

try:
    import jax
    import jax.numpy as jnp
    from jax.experimental import io_callback
except ImportError as error:
    raise ImportError("fedassay.adapters.jax needs JAX: pip install 'fedassay[jax]'") from error

Tree = Any
"""A pytree of arrays: an array, or tuples, lists and mappings of them."""
_ROOM, _LOTS = 2**20, 2000
"""Places of a batch, at most, and batches of a step, at most: places are whole numbers of 32 bits."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Lot:
    """A batch with the index of each record, -1 for padding, and its place in the step: ``names (n, 2)``."""

    names: Any
    batch: Any


class Training(Loop):
    """A training in JAX that can be run on neighbouring data, and with and without one unit.

    Example::

        def train(data, watch):
            params, draws = jnp.zeros(5), np.random.default_rng(watch.seed)
            watch = watch(params)
            grad = jax_privacy.clipped_grad(watch.loss(loss), l2_clip_norm=1.0)
            noise = watch.noise(gaussian_privatizer(stddev=1.0, prng_key=watch.seed))
            state = noise.init(params)
            for lot in CyclicPoissonSampling(sampling_prob=0.1, iterations=30).batch_iterator(len(data), draws):
                noised, state = noise.update(grad(params, watch.lot(lot, data[lot])), state)
                params = params - noised / 20
            return params


        system = Training(train, data, noise_multiplier=1.0, clip_norm=1.0, rate=0.1, steps=30, delta=1e-5)
        print(*system.watch().lines(), sep="\\n")

    Args:
        train: ``train(data, watch)`` makes and trains a model, and returns its parameters. ``watch(params)`` returns
            the ``JaxWatch``, which wraps loss, noise and batches. All keys and generators must come from ``watch.seed``
            or the global generators.
        data: arrays, or tuples, lists and mappings of arrays, with one entry for each record.
        others: as in ``Loop``.

    Raises:
        TypeError: for data without arrays.
        ValueError: for arrays of different lengths, and as ``Loop``.
    """

    def __init__(self, train: Callable[[Any, Any], Any], data: Tree, **others: Any) -> None:
        if not callable(train):
            raise TypeError(f"train must be a function train(data, watch), got {train!r}")
        leaves, structure = jax.tree.flatten(data)
        arrays = [np.asarray(one) for one in leaves]
        if not arrays or any(one.ndim == 0 or one.dtype.kind == "O" for one in arrays):
            raise TypeError(f"data must be arrays with one entry for each record, got {type(data).__name__}")
        if len(lengths := {len(one) for one in arrays}) > 1:
            raise ValueError(f"data must hold arrays of one length, got {sorted(lengths)}")

        def run(logged: Any, made: _Watches) -> object:
            if (count := jax.process_count()) > 1:
                raise Unwatchable(f"this is one of {count} processes that train together: watch one process alone")
            watches = _JaxWatches(made)
            try:
                returned = train(jax.tree.unflatten(structure, logged.leaves), watches)
                jax.effects_barrier()
            except Exception:
                # What a callback raises arrives as an error of the runtime, without its class.
                if watches.error is not None:
                    raise watches.error from None
                raise
            return watches.end(returned)

        super().__init__(run, _Arrays(leaves=arrays), **others)


class JaxWatch:
    """Reports gradients and noised sums of one run; made by ``watch(params)``.

    In a run with the noised sums of another one, ``noise`` returns those. A planted unit takes the place of its
    record in ``loss``, so that the training clips its gradient.
    """

    def __init__(self, watch: _PlayedWatch, model: "_Held", of: _Watches, bound: float | None) -> None:
        self._watch, self._model, self._of = watch, model, of
        # In the unit of the noised sum, a clipped gradient has this length at most.
        self._scale = 1.0 if bound is None else of.stated["clip_norm"] / bound
        self.error: Exception | None = None
        self.rows = 0
        self._seen: set[int] = set()
        self._lots = 0
        self._unit, self._vector = -2, None
        if of.plant is not None:
            layout = watch.layout
            vector = of.plant.direction(layout) * (of.plant.weight * of.stated["clip_norm"] * of.member)
            self._unit = of.data.units[0]
            self._vector = model.unflatten(vector.float().numpy())

    def loss(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the loss ``function(params, ...)``, which then reports its gradients; one argument holds a batch that
        ``lot`` returned.
        """

        def watched(params: Tree, *args: Any, **named: Any) -> Any:
            given = jax.tree.leaves((args, named), is_leaf=_is_lot)
            lots = [one for one in given if _is_lot(one)]
            args, named = jax.tree.map(lambda one: one.batch if _is_lot(one) else one, (args, named), is_leaf=_is_lot)
            names = lots[0].names if lots else None
            params = self._tapped(params, names)
            found = function(params, *args, **named)
            if names is None or self._vector is None:
                return found
            if isinstance(found, tuple):
                return (self._planted(found[0], params, names), *found[1:])
            return self._planted(found, params, names)

        return watched

    def _planted(self, value: Any, params: Tree, names: Any) -> Any:
        """The loss of a batch, with that of the unit's record replaced by one whose gradient is the planted vector."""
        parts = jax.tree.map(lambda one, unit: (one * unit).sum(), params, self._vector)
        own, is_unit = jnp.asarray(sum(jax.tree.leaves(parts)), value.dtype), names[..., 0] == self._unit
        if value.shape == is_unit.shape:
            return jnp.where(is_unit, own, value)
        return jnp.where(is_unit.all(), own, value + jnp.where(is_unit.any(), own, 0))

    def lot(self, ids: Any, batch: Tree) -> Lot:
        """Return a batch with the indices of its records in the data, ``(n,)``, -1 for padding; pass it on to the
        function that computes clipped gradients. If these are computed twice, the first gradients count; call this once
        for each batch.

        Raises ValueError for indices that are no whole numbers in one dimension.
        """
        found = jnp.asarray(ids)
        if found.ndim != 1 or not (jnp.issubdtype(found.dtype, jnp.integer) or not found.size):
            raise ValueError(f"ids must be whole numbers (n,), got {found.dtype} of shape {found.shape}")
        self._lots = self._lots % _LOTS + 1
        places = jnp.arange(len(found)) + self._lots * _ROOM
        return Lot(names=jnp.stack([found.astype(jnp.int32), places.astype(jnp.int32)], axis=1), batch=batch)

    def noise(self, addition: Any) -> Any:
        """Return a noise addition that reports its sums before and after the noise.

        ``addition``: a function of the sum, and of more, that returns the noised sum, alone or first in a tuple; or a
        gradient transformation of optax with such an ``update``. It may take the gradients of all records instead, clip
        and average them, as ``optax.contrib.differentially_private_aggregate`` does.

        Raises Unwatchable for a transformation that keeps earlier noise, because its noise is correlated.
        """
        if hasattr(addition, "update"):

            def init(params: Tree) -> Any:
                state = addition.init(params)
                if any(jnp.issubdtype(jnp.asarray(one).dtype, jnp.floating) for one in jax.tree.leaves(state)):
                    raise Unwatchable(
                        "the state of the noise holds numbers of earlier steps, but only noise that is independent "
                        "between steps can be watched: pass watch.noise the part that adds noise alone"
                    )
                return state

            return addition._replace(init=init, update=self.noise(addition.update))

        def noised(total: Tree, *args: Any, **named: Any) -> Any:
            def call(given: Tree) -> tuple[Tree, tuple[Any, ...] | None]:
                found = addition(given, *args, **named)
                alone = jax.tree.structure(found) == jax.tree.structure(total)
                return (found, None) if alone else (found[0], tuple(found[1:]))

            released, rest = call(total)
            count = _records(total, released)
            if count is not None:  # Equal draws, so that the difference is the sum alone.
                bare, _ = call(jax.tree.map(jnp.zeros_like, total))
                total = jax.tree.map(lambda one, other: one - other, released, bare)
            scale = self._scale * (1 if count is None else count)
            wide = jax.tree.map(lambda one: one.astype(jnp.float32), (total, released))
            shapes = jax.tree.map(lambda one: jax.ShapeDtypeStruct(one.shape, jnp.float32), wide[1])

            def report(before: Tree, after: Tree) -> Tree:
                return self._kept(lambda: self._release(before, after, scale))

            sent = io_callback(report, shapes, *wide, ordered=True)
            sent = jax.tree.map(lambda one, like: one.astype(like.dtype), sent, released)
            return sent if rest is None else (sent, *rest)

        return noised

    def _tapped(self, params: Tree, names: Any) -> Tree:
        """The parameters, whose gradients are reported."""

        def same(held: Tree, names: Any) -> Tree:
            # Depends on the names, so that the loss of each record has parameters of its own under vmap.
            zero = 0 if names is None else (0 * names).sum()
            return jax.tree.map(lambda one: one + jnp.asarray(zero, one.dtype), held)

        tap = jax.custom_vjp(same)

        def backward(kept: tuple[Tree, Any], gradient: Tree) -> tuple[Tree, None]:
            held, names = kept
            if names is None:
                raise ValueError("a gradient of records without indices: pass their batch through watch.lot first")
            dims = names.ndim

            def report(names: Any, gradient: Tree, held: Tree) -> Any:
                return self._kept(lambda: self._rows(names, dims, gradient, held))

            wide = jax.tree.map(lambda one: one.astype(jnp.float32), gradient)
            zero = jax.ShapeDtypeStruct((), jnp.float32)
            # The gradient depends on the callback's zero, so that it is reported before it is used.
            zeros = jax.pure_callback(report, zero, names, wide, held, vmap_method="expand_dims")
            return jax.tree.map(lambda one: one + zeros.astype(one.dtype), gradient), None

        tap.defvjp(lambda held, names: (same(held, names), (held, names)), backward)
        return tap(params, names)

    def _kept(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            self.error = self.error or error
            raise

    def _rows(self, names: Any, dims: int, gradient: Tree, held: Tree) -> Any:
        """Take gradients with any number of leading dimensions; ``dims``: dimensions of the names of one gradient."""
        names, gradients = np.asarray(names), [np.asarray(one) for one in jax.tree.leaves(gradient)]
        depth = names.ndim - dims
        shape = np.broadcast_shapes(*(one.shape[:depth] for one in (names, *gradients)))
        count = int(np.prod(shape))
        flat = [np.broadcast_to(one, (*shape, *one.shape[depth:])).reshape(count, -1) for one in gradients]
        self._model.hold([np.asarray(one).reshape(np.asarray(one).shape[depth:]) for one in jax.tree.leaves(held)])
        whole = np.broadcast_to(names, (*shape, *names.shape[depth:])).reshape(count, -1, 2)
        self._lot(whole, torch.from_numpy(np.concatenate(flat, axis=1)))
        return np.zeros(shape, dtype=np.float32)

    def _lot(self, names: Any, rows: Tensor) -> None:
        """Report ``rows (n, d)``, each the gradient of the records ``names (n, m, 2)``."""
        self.rows += len(rows)
        ids, new = names[..., 0], np.array([place not in self._seen for place in names[..., 1].flat], dtype=bool)
        real = (ids >= 0) & new.reshape(ids.shape)
        self._seen.update(names[..., 1].ravel().tolist())
        if names.shape[1] > 1:
            if real.any():
                self._watch.lot(ids[real].tolist(), None)
            return
        self._watch.lot(ids[real].tolist(), rows[torch.from_numpy(real[:, 0])])

    def _release(self, before: Tree, after: Tree, scale: float) -> Tree:
        if not self._seen:  # An empty lot computes no gradient.
            self._watch.lot([], torch.zeros(0, self._watch.layout.dim))
        self._seen.clear()
        total, noised = (self._flat(one) * scale for one in (before, after))
        self._watch.release(total, noised)
        # Global generators are read while the training goes on to its next lot; keys of JAX are no state.
        self._watch.drawn[-1] = 0
        return jax.tree.unflatten(jax.tree.structure(after), self._model.unflatten_leaves((noised / scale).numpy()))

    def _flat(self, tree: Tree) -> Tensor:
        leaves = [np.asarray(one) for one in jax.tree.leaves(tree)]
        shapes = [one.shape for one in leaves]
        if shapes != list(self._watch.layout.shapes):
            raise ValueError(f"a noised sum must have the shapes of the parameters, got {shapes}")
        return torch.from_numpy(np.concatenate([one.reshape(-1) for one in leaves]).astype(np.float32))


def _is_lot(one: object) -> bool:
    return isinstance(one, Lot)


def _records(given: Tree, released: Tree) -> int | None:
    """The number of records whose gradients were given; None where their sum was."""
    pairs = list(zip(jax.tree.leaves(given), jax.tree.leaves(released), strict=True))
    return int(pairs[0][0].shape[0]) if all(one.ndim == other.ndim + 1 for one, other in pairs) else None


@dataclass(frozen=True, kw_only=True)
class _Arrays:
    """The arrays of a data set, ``(n, ...)`` each."""

    leaves: list[Any]

    def __len__(self) -> int:
        return len(self.leaves[0])

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return tuple(one[index] for one in self.leaves)


class _Held(nn.Module):
    """Copies of the parameters that the loss was last called with."""

    def __init__(self, params: Tree) -> None:
        super().__init__()
        paths, self.structure = jax.tree_util.tree_flatten_with_path(params)
        for path, leaf in paths:
            name = jax.tree_util.keystr(path, simple=True, separator="/").replace(".", "_") or "params"
            while hasattr(self, name):  # Such as "type", which each module has.
                name += "_"
            self.register_parameter(name, nn.Parameter(_tensor(leaf)))

    def hold(self, leaves: Sequence[Any]) -> None:
        with torch.no_grad():
            for one, leaf in zip(self.parameters(), leaves, strict=True):
                one.copy_(_tensor(leaf))

    def unflatten_leaves(self, vector: Any) -> list[Any]:
        parts = np.split(vector, np.cumsum([one.numel() for one in self.parameters()])[:-1])
        return [part.reshape(one.shape) for part, one in zip(parts, self.parameters(), strict=True)]

    def unflatten(self, vector: Any) -> Tree:
        return jax.tree.unflatten(self.structure, self.unflatten_leaves(vector))


def _tensor(leaf: Any) -> Tensor:
    return torch.from_numpy(np.array(leaf, dtype=np.float32))


class _JaxWatches:
    """What ``train`` receives as ``watch``."""

    def __init__(self, made: _Watches) -> None:
        self._made = made
        self._watches: list[JaxWatch] = []
        self.seed = torch.initial_seed() % 2**31
        """A number that differs between runs, for keys and generators."""

    def __call__(self, params: Tree, *, bound: float | None = None, **stated: Any) -> JaxWatch:
        """Return the watch of parameters. ``bound``: length of a clipped gradient in the sum that is noised, if it is
        not the clip norm, such as ``l2_norm_bound`` of jax_privacy's function; ``stated``: ``rate`` and ``steps`` that
        differ in this run.
        """
        model = _Held(params)
        self._watches.append(JaxWatch(self._made(model, **stated), model, self._made, bound))
        return self._watches[-1]

    @property
    def error(self) -> Exception | None:
        return next((one.error for one in self._watches if one.error is not None), None)

    def end(self, returned: object) -> object:
        """What ``train`` returned, with PyTorch's tensors in place of parameters."""
        for one in self._watches:
            if not one.rows:
                raise Unwatchable("no gradient was reported: wrap the loss by watch.loss before it is differentiated")
        return self._converted(returned)

    def _converted(self, found: object) -> object:
        for one in self._watches:
            if jax.tree.structure(found) == one._model.structure:
                leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(found)]
                if [leaf.shape for leaf in leaves] == list(one._watch.layout.shapes):
                    one._model.hold(leaves)
                    return dict(zip(one._watch.layout.names, map(_tensor, leaves), strict=True))
        if isinstance(found, Mapping):
            paths, _ = jax.tree_util.tree_flatten_with_path(found)
            return {jax.tree_util.keystr(path, simple=True, separator="/"): _tensor(leaf) for path, leaf in paths}
        if isinstance(found, list | tuple):
            return [self._converted(one) for one in found]
        return np.asarray(found) if isinstance(found, jax.Array) else found
