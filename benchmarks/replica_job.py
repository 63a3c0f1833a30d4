"""Federations under DP-FedAvg that are run a thousand times, with a plain PyTorch loop and whole federations in JAX.

Ten clients with 120 images each, 20 rounds of FedSGD: in every round each client draws 12 of its images, its
gradient is clipped to length 1, and Gaussian noise of standard deviation 1 is added to the sum.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from fedassay.defenses.client_level.dp_fedavg import DPFedAvgProtection
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.models.network import Network
from fedassay.fl.models.small_models import build_model
from fedassay.fl.plan import Plan
from fedassay.fl.sampling import FixedSize, Full
from fedassay.fl.streams import Streams
from fedassay.fl.task import Task
from torch import Tensor
from torch.nn.functional import cross_entropy
from turns import TurnOver, cpu_seconds

CLIENTS, SAMPLES, CLASSES = 10, 120, 10
_LEARNING_RATE, _CLIP = 0.5, 1.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """A federation: model "logistic", "cnn26k" or "mlp" with so many ``hidden`` units, on synthetic images.

    Images of cnn26k are 1x28x28, of the others 1x8x8, as digits are. ``lot`` and ``noise_multiplier`` are arguments so
    that the ways can be compared without chance: in lots of all samples and without noise.
    """

    model: str
    hidden: int = 0
    rounds: int = 20
    lot: int = 12
    noise_multiplier: float = 1.0

    @cached_property
    def network(self) -> Network:
        """The model and its loss."""
        side = 28 if self.model == "cnn26k" else 8
        options = {"hidden": self.hidden} if self.hidden else {}
        return Network(model=self.model, shape=(1, side, side), classes=CLASSES, options=options)

    @cached_property
    def task(self) -> Task:
        """The federation as the engine takes it."""
        rng = torch.Generator().manual_seed(0)
        images = torch.rand(CLIENTS * SAMPLES, *self.network.shape, generator=rng)
        labels = torch.randint(CLASSES, (len(images),), generator=rng)
        few = {"images": images[:10], "labels": labels[:10]}
        return Task(
            network=self.network,
            images=images,
            labels=labels,
            parts=torch.arange(len(images)).split(SAMPLES),
            **{f"{part}_{name}": values for part in ("outsider", "test") for name, values in few.items()},
        )

    @cached_property
    def plan(self) -> Plan:
        """The plan of one federation."""
        return Plan(
            sizes=self.task.sizes,
            rounds=self.rounds,
            cohort=Full(),
            lot=Full() if self.lot == SAMPLES else FixedSize(self.lot),
            algorithm=FedSGD(learning_rate=_LEARNING_RATE),
            layout=self.network.layout,
        )

    @cached_property
    def protection(self) -> DPFedAvgProtection:
        """DP-FedAvg."""
        return DPFedAvgProtection(clip_norm=_CLIP, noise_multiplier=self.noise_multiplier)

    @cached_property
    def initial(self) -> Tensor:
        """The first model ``(d,)``."""
        return self.task.initial(Streams(0))


def plain_loop(job: Job, seed: int) -> Tensor:
    """One federation in PyTorch alone; returns the last model ``(d,)``."""
    torch.manual_seed(seed)
    network, data = job.network, job.task
    model = build_model(network.model, shape=network.shape, classes=CLASSES, **network.options)
    weights = list(model.parameters())
    torch.nn.utils.vector_to_parameters(job.initial.clone(), weights)  # The weights become parts of the vector.
    for _ in range(job.rounds):
        total = torch.zeros_like(job.initial)
        for part in data.parts:
            lot = part[torch.randperm(SAMPLES)[: job.lot]]
            loss = cross_entropy(model(data.images[lot]), data.labels[lot])
            gradient = torch.cat([layer.flatten() for layer in torch.autograd.grad(loss, weights)])
            total -= gradient * (_CLIP / gradient.norm()).clamp_max(1)
        total += job.noise_multiplier * _CLIP * torch.randn_like(total)
        with torch.no_grad():
            for layer, step in zip(weights, job.network.layout.unflatten(total).values(), strict=True):
                layer.add_(step, alpha=_LEARNING_RATE / CLIENTS)
    return torch.nn.utils.parameters_to_vector(weights).detach()


def jax_federations(job: Job, at_once: int) -> tuple[Callable[[int, int], Any], Callable[[int], float]]:
    """Return ``run(replicas, seed) -> (replicas, d)`` and ``compile(replicas) -> CPU seconds``, in JAX.

    One compiled function runs whole federations: scan over rounds, vmap over clients, and over replicas vmap of so many
    ``at_once``.
    """
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    import jax
    from jax import lax, random
    from jax import numpy as jnp

    layout = job.network.layout
    ends = np.cumsum([0, *(int(np.prod(shape)) for shape in layout.shapes)])
    images = jnp.asarray(job.task.images.numpy()).reshape(CLIENTS, SAMPLES, *job.network.shape)
    labels, initial = jnp.asarray(job.task.labels.numpy()).reshape(CLIENTS, SAMPLES), jnp.asarray(job.initial.numpy())
    logits = _jax_models(jax)[job.model]

    def layers_of(model: Any) -> dict[str, Any]:
        cut = zip(layout.names, layout.shapes, ends[:-1], ends[1:], strict=True)
        return {name: model[start:end].reshape(shape) for name, shape, start, end in cut}

    def loss(layers: dict[str, Any], lot: Any, classes: Any) -> Any:
        found = jax.nn.log_softmax(logits(layers, lot))
        return -jnp.take_along_axis(found, classes[:, None], axis=1).mean()

    def report(layers: dict[str, Any], key: Any, own: Any, classes: Any) -> Any:
        # The largest of uniform numbers are a uniform subset, faster than a permutation.
        chosen = jnp.arange(SAMPLES) if job.lot == SAMPLES else lax.top_k(random.uniform(key, (SAMPLES,)), job.lot)[1]
        gradient = jax.grad(loss)(layers, own[chosen], classes[chosen])
        flat = jnp.concatenate([gradient[name].ravel() for name in layout.names])
        return -flat * jnp.minimum(1, _CLIP / jnp.linalg.norm(flat))

    def one_round(model: Any, key: Any) -> tuple[Any, None]:
        for_lots, for_noise = random.split(key)
        keys = random.split(for_lots, CLIENTS)
        total = jax.vmap(report, in_axes=(None, 0, 0, 0))(layers_of(model), keys, images, labels).sum(0)
        total += job.noise_multiplier * _CLIP * random.normal(for_noise, total.shape)
        return model + _LEARNING_RATE / CLIENTS * total, None

    def federation(key: Any) -> Any:
        return lax.scan(one_round, initial, random.split(key, job.rounds))[0]

    def federations(keys: Any) -> Any:
        return jax.vmap(federation)(keys) if at_once >= len(keys) else lax.map(federation, keys, batch_size=at_once)

    programs = dict[int, Any]()

    def compile_for(replicas: int) -> float:
        started = cpu_seconds()
        programs[replicas] = jax.jit(federations).lower(random.split(random.key(0), replicas)).compile()
        return cpu_seconds() - started

    def run(replicas: int, seed: int) -> Any:
        if replicas not in programs:
            compile_for(replicas)
        return np.asarray(programs[replicas](random.split(random.key(seed), replicas)))

    return run, compile_for


def _jax_models(jax: Any) -> dict[str, Callable[[dict[str, Any], Any], Any]]:
    """The models as functions of layers and images ``(n, c, h, w)``, with this package's names and shapes of layers."""
    lax, relu = jax.lax, jax.nn.relu

    def linear(layers: dict[str, Any], name: str, features: Any) -> Any:
        return features @ layers[f"{name}.weight"].T + layers[f"{name}.bias"]

    def convolution(layers: dict[str, Any], name: str, features: Any, stride: int, padding: int) -> Any:
        sides = [(padding, padding)] * 2
        out = lax.conv_general_dilated(features, layers[f"{name}.weight"], (stride, stride), sides)
        return out + layers[f"{name}.bias"][:, None, None]

    def pool(features: Any) -> Any:
        return lax.reduce_window(features, -jax.numpy.inf, lax.max, (1, 1, 2, 2), (1, 1, 1, 1), "VALID")

    def logistic(layers: dict[str, Any], images: Any) -> Any:
        return linear(layers, "output", images.reshape(len(images), -1))

    def mlp(layers: dict[str, Any], images: Any) -> Any:
        return linear(layers, "output", relu(linear(layers, "hidden", images.reshape(len(images), -1))))

    def cnn26k(layers: dict[str, Any], images: Any) -> Any:
        features = pool(relu(convolution(layers, "conv1", images, 2, 3)))
        features = pool(relu(convolution(layers, "conv2", features, 2, 0)))
        hidden = relu(linear(layers, "hidden", features.reshape(len(images), -1)))
        return linear(layers, "output", hidden)

    return {"logistic": logistic, "mlp": mlp, "cnn26k": cnn26k}


def run_plain(job: Job, turn_over: TurnOver, *, replicas: int, turns: int) -> float:
    """Run federations of the plain loop one by one, so many per turn."""
    for turn in range(turns):
        for replica in range(replicas):
            plain_loop(job, turn * replicas + replica)
        turn_over()
    return 0.0


def run_jax(job: Job, turn_over: TurnOver, *, replicas: int, turns: int, at_once: int) -> float:
    """Run so many federations in JAX per turn; returns the CPU seconds of compiling."""
    run, compile_for = jax_federations(job, at_once)
    compiling = compile_for(replicas)
    for turn in range(turns):
        run(replicas, turn)
        turn_over()
    return compiling
