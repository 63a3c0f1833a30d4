"""Attack the caller's own trained model: infer which samples it was trained on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from ...attacks.attack import Attack, Knowledge, Level
from ...attacks.membership.candidates import MembershipAttack
from ...attacks.membership.shadow_attack import ShadowAttack
from ...attacks.shadow_bank import ShadowBank, true_class_logits
from ...audit.arrays import BoolArray, FloatArray, IntArray
from ...audit.binomial import check_number
from ...audit.evidence import CandidateScores, checked_scores
from ...audit.metrics import Area, ScoresByRun, area_interval, tpr_at
from ...audit.observer import FINAL_MODEL
from ...audit.supplied.given import detached
from ...fl.algorithms.algorithm import FedSGD
from ...fl.models.normalise import normalisation_from
from ...fl.partitions.sampling import Full
from ...fl.plan import Plan
from ...fl.probe import Candidates
from ...fl.streams import Streams
from ...fl.view import View
from ..config.source import ConfigError
from .given_model import GivenNetwork, given_network
from .on_gradient import chosen_attack, labelled_images, public_data

if TYPE_CHECKING:
    import pandas

Labelled = tuple[ArrayLike, ArrayLike]


@dataclass(frozen=True, eq=False)
class MembershipResult:
    """How well an attack distinguishes samples that one model was trained on from samples that it was not.

    All samples share the model's training, so this judges no privacy claim: for that, see ``fedassay.audit_scores``.

    Attributes:
        members: (n1,) scores of the model's training samples; higher means member.
        nonmembers: (n0,) scores of the others.
        auc: area under the ROC curve, with a 95 % interval over the samples, which holds for this model alone.
    """

    members: FloatArray
    nonmembers: FloatArray
    auc: Area

    @classmethod
    def of(cls, members: ArrayLike, nonmembers: ArrayLike) -> "MembershipResult":
        """Measure scores, higher means member. Raises ValueError for empty or non-finite scores."""
        one, other = checked_scores("members", members), checked_scores("nonmembers", nonmembers)
        return cls(members=one, nonmembers=other, auc=area_interval(ScoresByRun.of(one, other)))

    def tpr(self, fpr: float) -> float:
        """Return the share of members above the lowest threshold that at most the share ``fpr`` of non-members exceeds.

        It is a point estimate: the threshold was chosen on the same scores. Raises ValueError unless 0 <= fpr <= 1.
        """
        check_number("fpr", fpr)
        if not 0 <= fpr <= 1:
            raise ValueError(f"fpr (a false-positive rate) must be in [0, 1], got {fpr}")
        return tpr_at(self.members, self.nonmembers, fpr)

    def frame(self) -> "pandas.DataFrame":
        """Return the AUC with its interval and the true-positive rate at false-positive rates of 1 % and 10 %."""
        import pandas

        rows = [{"metric": "auc", "value": self.auc.value, "low": self.auc.low, "high": self.auc.high}]
        rows += [{"metric": f"tpr at fpr {rate:g}", "value": self.tpr(rate)} for rate in (0.01, 0.1)]
        return pandas.DataFrame(rows)

    def _repr_html_(self) -> str:
        return str(self.frame().to_html(index=False, float_format="{:.3f}".format, na_rep=""))


def attack_membership(
    model: nn.Module,
    members: Labelled,
    nonmembers: Labelled,
    *,
    attack: str | Attack = "loss",
    references: Sequence[nn.Module] = (),
    included: ArrayLike | None = None,
    public: Labelled | None = None,
    normalise: dict[str, Any] | None = None,
    seed: int = 0,
    **options: Any,
) -> MembershipResult:
    """Attack your own trained model with samples that it was and was not trained on.

    The attack gets all samples in a random order and does not learn which are which. Members and non-members must be
    drawn alike: otherwise the scores measure the difference between the two sets and not the training.

    Args:
        model: images ``(n, c, h, w)`` in, logits ``(n, classes)`` out, in evaluation mode.
        members: images ``(n1, c, h, w)`` in [0, 1] and labels ``(n1,)`` of the model's training samples.
        nonmembers: the same of samples that it was not trained on.
        attack: the name of an attack on the final model (``fedassay list attacks``), ``package.module:Class`` or an
            object.
        references: models of the same kind that were trained on other samples, for attacks that compare with them, such
            as ``rmia`` and ``lira_offline``.
        included: (references, n1 + n0) booleans, which reference was trained on which sample, members first; None: on
            none of them.
        public: images and labels that no model was trained on, for attacks that use them.
        normalise: ``{"mean": ..., "std": ...}`` if the models take normalised images.
        seed: of the attack's random numbers.
        options: fields of a named attack.

    Raises:
        ConfigError: an unknown attack or option, an attack that is not on a final model, or ``references`` or
            ``included`` for an attack that uses no reference models.
        TypeError, ValueError: models or samples that cannot be used, with the reason, images that members and
            non-members share, or too few references.
    """
    chosen = chosen_attack(attack, options)
    if not isinstance(chosen, MembershipAttack) or chosen.observer != FINAL_MODEL:
        raise ConfigError(f"attack {attack!r} is no membership attack on a final model; see `fedassay list attacks`")
    # A null attack takes the arguments of the attack whose baseline it is.
    _check_references(attack, references, included, used=isinstance(chosen, ShadowAttack) or chosen.null)
    constants = None if normalise is None else normalisation_from(normalise)
    network, weights = given_network(model, _image_shape(members), normalisation=constants)
    sides = [
        labelled_images(name, side, network.shape, network.classes)
        for name, side in (("members", members), ("nonmembers", nonmembers))
    ]
    _check_disjoint(sides[0][0], sides[1][0])
    images, labels = (torch.cat(parts) for parts in zip(*sides, strict=True))
    # Members and non-members are mixed: their order would otherwise reveal the truth.
    order = Streams(seed).generator("candidate order").permutation(len(labels))
    shown = Candidates(images=images[order], labels=labels[order], clients=(0,))
    population = public_data(public, network.shape, network.classes)
    shadows = None
    if isinstance(chosen, ShadowAttack):
        shadows = _bank(_like(network, references), included, order, shown, population)
    plan = Plan(
        sizes=(len(sides[0][1]),),
        rounds=1,
        cohort=Full(),
        lot=Full(),
        algorithm=FedSGD(learning_rate=1.0),
        layout=network.layout,
    )
    knowledge = Knowledge(
        level=Level.REALISTIC,
        network=network,
        plan=plan,
        law=lambda observer, client: None,
        public_images=population[0],
        public_labels=population[1],
        candidates=shown,
        shadows=shadows,
    )
    view = View(observer=FINAL_MODEL, plan=plan, rounds=(), final_model=weights.unsqueeze(0))
    found = chosen.run(view, knowledge, Streams(seed).generator("attack membership"))
    if not isinstance(found, CandidateScores):
        raise ConfigError(f"attack {attack!r} must return CandidateScores, got {type(found).__name__}")
    if found.values.shape != order.shape:
        raise ConfigError(f"attack {attack!r} must give {len(order)} scores, one per sample, got {found.values.shape}")
    scores, cut = found.values[np.argsort(order)], len(sides[0][1])
    return MembershipResult.of(scores[:cut], scores[cut:])


def _check_references(attack: str | Attack, references: Any, included: Any, *, used: bool) -> None:
    if isinstance(references, nn.Module | str) or not isinstance(references, Sequence):
        raise TypeError(f"references must be a list of models, got {type(references).__name__}")
    for name, given in (("references", bool(references)), ("included", included is not None)):
        if given and not used:
            raise ConfigError(f"attack {attack!r} compares with no reference models: leave out {name}")


def _check_disjoint(members: torch.Tensor, nonmembers: torch.Tensor) -> None:
    """Raise ValueError if an image is on both sides: a sample that the model was trained on is no non-member."""
    # Adding zero turns -0.0 into 0.0, which has other bytes.
    known = {(image + 0.0).numpy().tobytes(): at for at, image in reversed(list(enumerate(members)))}
    if shared := [
        (at, known[key]) for at, image in enumerate(nonmembers) if (key := (image + 0.0).numpy().tobytes()) in known
    ]:
        (at, of), several = shared[0], f", and {len(shared) - 1} more" if len(shared) > 1 else ""
        raise ValueError(
            f"members and nonmembers must share no image, but nonmembers[{at}] is members[{of}]{several}: give samples "
            "that the model was not trained on as nonmembers"
        )


def _like(network: GivenNetwork, references: Sequence[nn.Module]) -> list[tuple[GivenNetwork, torch.Tensor]]:
    """The reference models as networks of the attacked one's shape, classes and normalisation, with their weights."""
    found = []
    for at, model in enumerate(references):
        one = given_network(model, network.shape, normalisation=network.normalisation, name=f"references[{at}]")
        if one[0].classes != network.classes:
            raise ValueError(f"references[{at}] must have the {network.classes} classes of model, got {one[0].classes}")
        found.append(one)
    return found


def _image_shape(members: Labelled) -> tuple[int, ...]:
    if not isinstance(members, tuple | list) or len(members) != 2:
        raise ValueError(f"members must be a pair (images, labels), got {type(members).__name__}")
    if len(shape := tuple(np.shape(detached(members[0])))) != 4:
        raise ValueError(f"images of members must have shape (m, channels, height, width), got {shape}")
    return shape[1:]


def _bank(
    models: Sequence[tuple[GivenNetwork, torch.Tensor]],
    included: ArrayLike | None,
    order: IntArray,
    shown: Candidates,
    population: tuple[torch.Tensor, torch.Tensor],
) -> ShadowBank:
    """The reference models' logits of the candidates and of the public samples; ``order``: the number of each candidate
    among the samples in the caller's order.
    """
    if not models:
        raise ValueError("this attack compares with reference models: give references=[...], models trained alike")
    size = (len(models), len(shown.labels))
    trained: BoolArray = np.zeros(size, dtype=np.bool_) if included is None else np.asarray(included)
    if trained.dtype != np.bool_ or trained.shape != size:
        raise ValueError(
            f"included must be booleans of shape {size} (references, members then non-members), got "
            f"{trained.shape} of {trained.dtype}"
        )
    return ShadowBank(
        logits=np.stack([true_class_logits(one, weights, shown.images, shown.labels) for one, weights in models]),
        included=trained[:, order],
        population=np.stack([true_class_logits(one, weights, *population) for one, weights in models]),
        ids=np.arange(size[1]),
    )
