"""Run an attack's optimisation on the CPU or a GPU."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ...attacks.attack import Attack, Evidence, Knowledge
from ...attacks.gradient.image_attack import SearchAttack
from ...fl.message import Message
from ...fl.training.devices import exact_convolutions
from ...fl.view import RoundView, View
from ..config.source import ConfigError


def check_device(device: str) -> None:
    """Raise ConfigError if this machine, or the installed build of PyTorch, does not support the device."""
    if device == "cuda" and not torch.cuda.is_available():
        built = f"PyTorch {torch.__version__} was built {'for' if torch.version.cuda else 'without'} CUDA"
        raise ConfigError(f'device "cuda" is not available here ({built}); leave the option out, or set device "cpu"')


def run_attack(attack: Attack, view: View, knowledge: Knowledge, rng: np.random.Generator, *, device: str) -> Evidence:
    """Run the attack, with its optimisation on ``device`` (CPU or GPU) if it has one; its random numbers are always
    drawn on the CPU.

    By default cuDNN's convolutions use TF32, with ten bits of each mantissa, and a search for exactly matching
    gradients would stop early. Here they use float32 and deterministic algorithms.
    """
    # Other attacks stay on the CPU: they search for nothing, so there is little to speed up.
    if device == "cpu" or not isinstance(attack, SearchAttack):
        return attack.run(view, knowledge, rng)
    with exact_convolutions():
        return attack.run(moved_view(view, device), moved_knowledge(knowledge, device), rng)


def moved_view(view: View, device: str) -> View:
    """Return a copy of what the observer received, with its tensors on ``device``."""
    rounds = tuple(_moved_round(seen, device) for seen in view.rounds)
    return replace(view, rounds=rounds, final_model=view.final_model.to(device))


def moved_knowledge(knowledge: Knowledge, device: str) -> Knowledge:
    """Return a copy of what the adversary knows, with public images, labels and the initial model on ``device``."""
    return replace(
        knowledge,
        public_images=knowledge.public_images.to(device),
        public_labels=knowledge.public_labels.to(device),
        initial=_moved(knowledge.initial, device),
    )


def _moved_round(seen: RoundView, device: str) -> RoundView:
    return replace(
        seen,
        broadcast=_moved(seen.broadcast, device),
        reports=_moved_message(seen.reports, device),
        aggregate=_moved(seen.aggregate, device),
        shared={name: array.to(device) for name, array in seen.shared.items()},
        masked_words=_moved_message(seen.masked_words, device),
    )


def _moved_message(message: Message | None, device: str) -> Message | None:
    if message is None:
        return None
    side = {name: array.to(device) for name, array in message.side.items()}
    return replace(message, values=message.values.to(device), present=message.present.to(device), side=side)


def _moved(tensor: Tensor | None, device: str) -> Tensor | None:
    return None if tensor is None else tensor.to(device)
