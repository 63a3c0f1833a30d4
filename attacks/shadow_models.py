"""Shadow models, each trained on a known half of the samples; every shadow model is attacked in turn."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..audit.observer import FINAL_MODEL
from ..fl.candidates import Candidates
from ..fl.plan import Plan
from ..fl.protection import Protection
from ..fl.recorder import RoundView, View
from ..fl.task import Task
from .attack import Knowledge
from .shadow_bank import ShadowBank, true_class_logits


@dataclass(frozen=True, kw_only=True)
class ShadowModels:
    """Trained shadow models (federations, or students of transfers), with the data that attacks on them may use.

    Args:
        models: (M, d), the final models.
        bank: the outputs of these models on the candidates and the population, and which candidates each was trained
            on.
        candidates: the samples whose membership the attacks infer.
        population: images and labels that no model was trained on.
    """

    task: Task
    plan: Plan
    protection: Protection
    models: Tensor
    bank: ShadowBank
    candidates: Candidates
    population: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, task: Task, plan: Plan, protection: Protection, *, models: Tensor, included: Tensor) -> "ShadowModels":
        """Compute the outputs of ``models (M, d)``, where ``included (M, pool)`` states which samples each was trained
        on: models 2k and 2k + 1 on complementary halves.
        """
        # Samples that no client holds are no candidates: a coin may include them, but nothing was trained on them.
        dealt = torch.from_numpy(np.unique(torch.cat(task.parts).numpy()))
        shown = task.images[dealt], task.labels[dealt]
        population = (
            torch.cat([task.outsider_images, task.test_images]),
            torch.cat([task.outsider_labels, task.test_labels]),
        )
        on_candidates, on_population = (
            np.stack([true_class_logits(task.network, model, *samples) for model in models])
            for samples in (shown, population)
        )
        bank = ShadowBank(
            logits=on_candidates,
            included=included[:, dealt].numpy(),
            population=on_population,
            ids=dealt.numpy(),
            paired=True,
        )
        return cls(
            task=task,
            plan=plan,
            protection=protection,
            models=models,
            bank=bank,
            candidates=Candidates(images=shown[0], labels=shown[1], clients=tuple(range(task.clients))),
            population=population,
        )

    def view(self, target: int) -> View:
        """Return what an observer of the final model alone receives of the model numbered ``target``."""
        rounds = tuple(RoundView(round=number) for number in range(self.plan.rounds))
        return View(
            observer=FINAL_MODEL, plan=self.plan, rounds=rounds, final_model=self.models[target : target + 1].clone()
        )

    def knowledge(self, target: int) -> Knowledge:
        """Return what an attack on the model numbered ``target`` may use: the logits and the training samples of all
        other models, except the one trained on the complementary half.
        """
        # The complementary model of the same pair would reveal the target's members exactly.
        known = Knowledge.of(
            self.task,
            self.plan,
            self.protection,
            candidates=self.candidates,
            shadows=self.bank.references(target),
        )
        return replace(known, public_images=self.population[0], public_labels=self.population[1])
