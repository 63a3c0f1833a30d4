"""What fedassay looks at inside Flower apps and JAX trainings.

Each look returns the first fault in words, and an empty string where it sees none.
"""

from importlib import import_module
from typing import Any

import numpy as np
from fedassay.adapters.loop_system import Loop

from dp_faults import Subject

from ._fedassay_loops import loop
from ._fedassay_parts import failed, law, opacus, setting, too_small


def flower(subject: Subject, part: Any, seed: int) -> str:
    """Watch an app with the clients of the first neighbour, and play rounds back with equal numbers of examples."""
    data, number = subject.neighbours[0], int(np.random.default_rng(seed).integers(2**31))
    adapter, replies = (
        import_module("fedassay.adapters.flower").App,
        import_module("fedassay.adapters.flower_play_back"),
    )
    app = adapter(
        lambda: part["apps"](data, number)[0],
        lambda: part["apps"](data, number)[1],
        nodes=len(data),
        delta=subject.program.claim.delta,
        cases=(replies.EQUAL,),
    )
    implied = app.claim.epsilon  # Raises where no noise is stated, as by a strategy of one's own.
    played = app.play_back(seed).results().failed
    return failed(app, seed) or (str(played[0].words) if played else "") or too_small(subject, implied)


def jax(subject: Subject, part: Any, seed: int) -> str:
    """Watch the noised sums of a training that runs without compilation; its gradients are not seen."""
    library, claim, data = import_module("jax"), subject.program.claim, np.asarray(subject.neighbours[0])
    stated = {name: part[name] for name in ("noise_multiplier", "clip_norm", "rate", "steps")}

    def train(records: Any, watch: Any) -> Any:
        made: list[Any] = []
        calls: list[Any] = []

        def noise(key: Any, total: Any) -> Any:
            before = np.array(library.flatten_util.ravel_pytree(total)[0], float)
            after, back = library.flatten_util.ravel_pytree(part["noise"](key, total))
            made[:] = made or [watch({"sum": before.shape})]
            calls.append(key)
            return back(library.numpy.asarray(made[0].release(before, np.array(after, float)), after.dtype))

        held = np.stack([records[one] for one in range(len(records))])
        key = library.random.key(int(np.random.randint(2**31)))  # noqa: NPY002
        with library.disable_jit():
            part["train"](held, key, part["clipped"], noise)
        if len(calls) != part["steps"]:
            raise ValueError(f"noise is called {len(calls)} times in {part['steps']} steps")

    import_module("jax.flatten_util")
    found = Loop(train, data, delta=claim.delta, **stated, **setting(subject))
    return failed(found, seed) or too_small(subject, found.claim.epsilon)


LOOKS = {"loop": loop, "opacus": opacus, "flower": flower, "jax": jax, "law": law}
