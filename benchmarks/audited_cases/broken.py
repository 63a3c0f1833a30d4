"""Forty defenses that claim more privacy than they give, by mistakes that are made in practice.

The first half trains correctly and leaks outside of the training: in the preparation of data, in the first model, in
choices, in names, or after the training. The second half is wrong in the training itself.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from correct_parts import ReportNoise, SampleNoise, ServerNoise, class_counts, imaged, sigma_of
from fedassay.audit.claim import Claim
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS, Observer
from fedassay.defenses.accounting.gaussian import calibrate_sampled_gaussian
from fedassay.defenses.defense import Defense, Prepared
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.laws import clip, clipped_sum
from fedassay.fl.message import Message
from fedassay.fl.models.network import Network
from fedassay.fl.plan import Plan
from fedassay.fl.preparation import Preparation, PreparedData
from fedassay.fl.protection import Context, Protection, State
from fedassay.fl.streams import normal, uniform
from scipy.special import ndtri
from torch import Tensor

Rng = np.random.Generator


# Correct parts, on which the cases are built.


def _claims(
    case: Any,
    plan: Plan,
    unit: str,
    adjacency: str,
    observer: Observer,
    *,
    gaussian: bool = True,
    **parameters: float,
) -> tuple[Claim, ...]:
    """The claim of a case's budget; ``gaussian``: with the curve of Gaussian noise at this budget."""
    budget = {"epsilon": case.epsilon, "delta": case.delta, "rounds": plan.rounds}
    mu = mu_from_epsilon(case.epsilon, case.delta) if gaussian else None
    claim = Claim.stated(**budget, mu=mu, unit=unit, adjacency=adjacency, observer=observer)
    return (replace(claim, parameters=parameters),)


def _by_samples(case: Any, plan: Plan, *, spent: float = 0.0, replaced: bool = False) -> Prepared:
    """Correct training with noise for each sample, at what the preparation leaves of the budget, and its claim.

    A preparation that spends some of the epsilon has half of the delta.
    """
    delta = case.delta / 2 if spent else case.delta
    # Two clipped gradients are up to two clip norms apart.
    sigma = (2 if replaced else 1) * sigma_of(case.epsilon - spent, delta, plan.steps)
    adjacency, facts = "replace_one" if replaced else "add_remove", {"noise_multiplier": sigma, "clip_norm": 1.0}
    claims = _claims(case, plan, "sample", adjacency, UPLOADS, gaussian=not spent, **facts)
    return Prepared(protection=SampleNoise(noise_multiplier=sigma), claims=claims)


def _by_server(case: Any, plan: Plan, observer: Observer = FINAL_MODEL) -> Prepared:
    """Correct training with a trusted server's noise, and its claim for one sample: with one sample more a client's
    clipped update is up to two clip norms away.
    """
    sigma = 2 * sigma_of(case.epsilon, case.delta, plan.rounds)
    claims = _claims(case, plan, "sample", "add_remove", observer, gaussian=False, noise_multiplier=sigma)
    return Prepared(protection=ServerNoise(noise_multiplier=sigma), claims=claims)


# 1 to 20: the training is right, and its surroundings are not.


@dataclass(frozen=True, kw_only=True)
class MinMaxPreparation(Preparation):
    """Every pixel is scaled by its smallest and largest value among all records, and the scaler is published."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        low, high = records.train_images.amin(0), records.train_images.amax(0)

        def scaled(images: Tensor) -> Tensor:
            return ((images - low) / (high - low).clamp_min(1e-6)).clamp(0, 1)

        data = imaged(records, scaled(records.train_images), scaled(records.test_images))
        return PreparedData(dataset=data, published={"scaler": {"low": low, "high": high}})


@dataclass(frozen=True, kw_only=True)
class MinMaxScaling(Defense):
    """DP-SGD on features that a fitted min-max scaler has scaled. The scaler ships with the model and holds exact
    extremes of single records: a record with the only bright pixel is seen for certain, so epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "MinMaxPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class ComponentsPreparation(Preparation):
    """Images keep what the first principal components of all records hold of them; the components are published."""

    kept: int = 12

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        flat = records.train_images.flatten(1).double()
        mean = flat.mean(0)
        _, axes = torch.linalg.eigh((flat - mean).T @ (flat - mean) / len(flat))
        main = axes[:, -self.kept :]

        def projected(images: Tensor) -> Tensor:
            rows = images.flatten(1).double() - mean
            return (rows @ main @ main.T + mean).clamp(0, 1).float().reshape(images.shape)

        data = imaged(records, projected(records.train_images), projected(records.test_images))
        return PreparedData(dataset=data, published={"components": main, "mean": mean})


@dataclass(frozen=True, kw_only=True)
class PrivateComponents(Defense):
    """DP-SGD after a principal component analysis of the private records, whose mean and axes clients must share. Both
    are exact functions of all records, so whoever knows the others solves for the last one: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "ComponentsPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class ActivePixelsPreparation(Preparation):
    """The vocabulary of pixels that any record lights, which is the list of the model's inputs."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        lit = (records.train_images > 0).any(0)
        kept = lit.flatten().nonzero().flatten().tolist()
        data = imaged(records, records.train_images * lit, records.test_images * lit)
        return PreparedData(dataset=data, published={"inputs": " ".join(f"pixel{place}" for place in kept)})


@dataclass(frozen=True, kw_only=True)
class ActivePixels(Defense):
    """Server noise on a model whose vocabulary of inputs is that of the private records. One record with a pixel
    that no other lights puts that pixel on the list, so the public learns it from the model's form: infinite epsilon.
    """

    PREPARATION: ClassVar[str] = "ActivePixelsPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_server(self, plan)


@dataclass(frozen=True, kw_only=True)
class DataCardPreparation(Preparation):
    """Classes are named for the data card, with the number of scans of each."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        names = tuple(f"digit {label} ({count} scans)" for label, count in enumerate(class_counts(records).tolist()))
        return PreparedData(dataset=imaged(records, records.train_images, class_names=names))


@dataclass(frozen=True, kw_only=True)
class DataCardNames(Defense):
    """DP-SGD with class names that state how many private records each class has. The exact counts tell for certain
    whether one record more of a class is there: epsilon is infinite for the label, whoever reads the names.
    """

    PREPARATION: ClassVar[str] = "DataCardPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_samples(self, plan, replaced=True)


def _centroids(records: Dataset) -> Tensor:
    """The mean image of each class, zero for a class without records."""
    flat = records.train_images.flatten(1).double()
    sums = torch.zeros(records.classes, flat.shape[1], dtype=torch.float64).index_add(0, records.train_labels, flat)
    return sums / class_counts(records).clamp_min(1).unsqueeze(1)


@dataclass(frozen=True, kw_only=True)
class PooledStartPreparation(Preparation):
    """The first model is the nearest-centroid classifier of the pooled records."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        means = _centroids(records)
        initial = torch.cat([means.flatten(), -means.square().sum(1) / 2]).float()
        return PreparedData(dataset=records, initial=initial)


@dataclass(frozen=True, kw_only=True)
class PooledWarmStart(Defense):
    """DP-SGD that starts from a classifier which was fitted to the same records without noise. Clients receive the
    first model, which holds exact class means, and subtract all records that they know: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "PooledStartPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class LipschitzStepPreparation(Preparation):
    """The learning rate is one over the smoothness of the loss, by the longest record."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        longest = float(records.train_images.flatten(1).square().sum(1).max())
        return PreparedData(dataset=records, algorithm={"learning_rate": 4 / (1 + longest)})


@dataclass(frozen=True, kw_only=True)
class LipschitzStep(Defense):
    """Server noise with a step size from the largest norm of a private record. The step size stands in the public
    configuration and is that of one record exactly, so epsilon is infinite for the longest record.
    """

    PREPARATION: ClassVar[str] = "LipschitzStepPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_server(self, plan, observer=GLOBAL_MODELS)


@dataclass(frozen=True, kw_only=True)
class RejectionPreparation(Preparation):
    """After the training, the score below which the model abstains is tuned on the clients' records."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        return PreparedData(dataset=records)

    def finish(self, models: Tensor, network: Network, records: Dataset, rng: Rng) -> Mapping[str, Any]:
        scores = network.logits(models[-1], records.train_images).softmax(-1).amax(-1)
        return {"abstain below": float(scores.double().quantile(0.05))}


@dataclass(frozen=True, kw_only=True)
class TunedRejection(Defense):
    """DP-SGD whose final threshold is the twentieth part of the private scores. The threshold is an exact score between
    two records under a known model, which one record more moves, so the public has infinite epsilon.
    """

    PREPARATION: ClassVar[str] = "RejectionPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class ConfusionPreparation(Preparation):
    """After the training a table of confusions on the clients' records is published, without cells below five."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        return PreparedData(dataset=records)

    def finish(self, models: Tensor, network: Network, records: Dataset, rng: Rng) -> Mapping[str, Any]:
        said = network.logits(models[-1], records.train_images).argmax(-1)
        cells = torch.bincount(records.train_labels * records.classes + said, minlength=records.classes**2)
        return {"confusions": torch.where(cells < 5, 0, cells).reshape(records.classes, -1)}


@dataclass(frozen=True, kw_only=True)
class SuppressedConfusions(Defense):
    """Server noise, and then a table of exact counts in which small cells are suppressed, as statistics offices
    do. Suppression is no noise: a record more changes a cell above five for certain, so epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "ConfusionPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_server(self, plan, observer=GLOBAL_MODELS)


@dataclass(frozen=True, kw_only=True)
class BestRoundPreparation(Preparation):
    """The model that ships is that of the round with the best accuracy on the clients' records."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        return PreparedData(dataset=records)

    def finish(self, models: Tensor, network: Network, records: Dataset, rng: Rng) -> Mapping[str, Any]:
        said = torch.stack([network.logits(model, records.train_images).argmax(-1) for model in models])
        return {"best round": int((said == records.train_labels).sum(1).argmax())}


@dataclass(frozen=True, kw_only=True)
class BestRound(Defense):
    """DP-SGD with early stopping by private accuracy. Which round is best is an exact comparison of counts: for given
    models with a tie one record decides it, and ties are far more frequent than delta, so that epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "BestRoundPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class NoisyMeanPreparation(Preparation):
    """Images are centred by a mean with Laplace noise of epsilon 1, for a change of 1 / n."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        exact = records.train_images.double().mean(0)
        mean = exact + torch.from_numpy(rng.laplace(scale=1 / len(records.train_labels), size=tuple(exact.shape)))
        centre = mean.clamp(0, 1).float()
        data = imaged(records, *((part - centre) / 2 + 0.5 for part in (records.train_images, records.test_images)))
        return PreparedData(dataset=data, published={"mean": mean})


@dataclass(frozen=True, kw_only=True)
class NoisyMeanPerPixel(Defense):
    """One unit of the budget for a noised mean image, and three for DP-SGD. One record moves each of the 64 pixels by
    1 / n, which is 64 times the sensitivity that the Laplace noise is for, so the mean alone shows epsilon 64.
    """

    PREPARATION: ClassVar[str] = "NoisyMeanPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_samples(self, plan, spent=1.0)


@dataclass(frozen=True, kw_only=True)
class NoisyCountsPreparation(Preparation):
    """The histogram of labels with Gaussian noise, so that clients can balance their classes."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        counts, total = class_counts(records).double(), len(records.train_labels)
        noise = rng.normal(scale=sigma_of(1.0, 5e-6, 1) / total, size=len(counts))
        return PreparedData(dataset=records, published={"histogram": counts.numpy() + noise})


@dataclass(frozen=True, kw_only=True)
class NoiseOfShareOnCounts(Defense):
    """One unit of the budget for a histogram of labels, three for DP-SGD. The noise has the size for shares (one n-th)
    and is added to counts, so that rounding gives the exact counts: epsilon above 10,000 for any reader.
    """

    PREPARATION: ClassVar[str] = "NoisyCountsPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_samples(self, plan, spent=1.0)


@dataclass(frozen=True, kw_only=True)
class UniquePreparation(Preparation):
    """Records that are exact copies of an earlier one are dropped across all clients."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        first: dict[bytes, int] = {}
        for place, image in enumerate(records.train_images.numpy()):
            first.setdefault(image.tobytes(), place)
        kept = torch.tensor(sorted(first.values()))
        data = imaged(records, records.train_images[kept], train_labels=records.train_labels[kept])
        return PreparedData(dataset=data)


@dataclass(frozen=True, kw_only=True)
class CopiesDropped(Defense):
    """DP-SGD for any replaced sample, after copies were dropped across clients. The number of records that are left is
    public and tells for certain whether a record equals another one, so epsilon is infinite for such a record.
    """

    PREPARATION: ClassVar[str] = "UniquePreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_samples(self, plan, replaced=True)


@dataclass(frozen=True, kw_only=True)
class UnitBallPreparation(Preparation):
    """All records are divided by the length of the longest one, and nothing is published."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        longest = records.train_images.flatten(1).norm(dim=1).max().clamp_min(1e-6)
        test = (records.test_images / longest).clamp(0, 1)
        return PreparedData(dataset=imaged(records, records.train_images / longest, test))


@dataclass(frozen=True, kw_only=True)
class ScaledByLongest(Defense):
    """DP-SGD on records that were divided by the longest private one, which stays secret. A long record among dim ones
    shrinks all others, so that the other clipped gradients turn by .7 clip norms each: epsilon about 80 for 16 samples.
    """

    PREPARATION: ClassVar[str] = "UnitBallPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class ByLabelPreparation(Preparation):
    """Records are dealt to clients by their label, and the sizes of clients are those of the labels."""

    clients: int = 6
    most: int = 180

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        labels = records.train_labels[: self.most].numpy()
        # One record for each client at least, so that no client is empty.
        owner = np.where(np.arange(len(labels)) < self.clients, np.arange(len(labels)), labels % self.clients)
        parts = [np.flatnonzero(owner == client) for client in range(self.clients)]
        return PreparedData(dataset=records, parts=parts)


@dataclass(frozen=True, kw_only=True)
class ClientsByLabel(Defense):
    """DP-SGD for any replaced sample, whose clients are formed by private labels. The number of records of each client
    is public, and moves by one if a record's label changes: epsilon is infinite for whoever knows the other records.
    """

    PREPARATION: ClassVar[str] = "ByLabelPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_samples(self, plan, replaced=True)


@dataclass(frozen=True, kw_only=True)
class RateSearchPreparation(Preparation):
    """One of sixteen learning rates is drawn by the exponential mechanism; its score is a number of right answers."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        rows, rates = records.train_images.flatten(1).double(), np.geomspace(0.5, 2.0, 16)
        wanted = torch.nn.functional.one_hot(records.train_labels, records.classes).double()
        scores = []
        for rate in rates:
            weights = torch.zeros(rows.shape[1], records.classes, dtype=torch.float64)
            for _ in range(4):
                weights -= rate * rows.T @ ((rows @ weights).softmax(1) - wanted) / len(rows)
            scores.append(int(((rows @ weights).argmax(1) == records.train_labels).sum()))
        # Epsilon 1 by a sensitivity of one n-th.
        odds = (np.array(scores) - max(scores)) * len(rows) / 2
        chances = np.exp(odds) / np.exp(odds).sum()
        return PreparedData(dataset=records, algorithm={"learning_rate": float(rng.choice(rates, p=chances))})


@dataclass(frozen=True, kw_only=True)
class RateSearch(Defense):
    """One unit of the budget for a learning rate, three for DP-SGD. The score is a count, of sensitivity one at least,
    and the noise is for one n-th, so that one record moves the odds of two rates by a factor exp(n / 2) and more.
    """

    PREPARATION: ClassVar[str] = "RateSearchPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_samples(self, plan, spent=1.0)


@dataclass(frozen=True, kw_only=True)
class FrequencyPreparation(Preparation):
    """Classes are numbered by how frequent they are among the records, the most frequent first."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        order = class_counts(records).argsort(descending=True, stable=True)
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order))
        labels = {"train_labels": rank[records.train_labels], "test_labels": rank[records.test_labels]}
        names = tuple(f"digit {label}" for label in order.tolist())
        return PreparedData(dataset=imaged(records, records.train_images, class_names=names, **labels))


@dataclass(frozen=True, kw_only=True)
class ClassesByFrequency(Defense):
    """Server noise for a model whose outputs are ordered by private frequencies, as tokenisers do. The public
    order is exact: where two classes have equal counts one record swaps them for certain, so epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "FrequencyPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_server(self, plan)


@dataclass(frozen=True, kw_only=True)
class BloomPreparation(Preparation):
    """A salted Bloom filter of all records is shared, so that no client uploads a record twice."""

    bits: int = 8192
    salt: str = "trial-7"

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        marks = np.zeros(self.bits)
        for image in records.train_images.numpy():
            digest = hashlib.sha256(self.salt.encode() + image.tobytes()).digest()
            marks[[int.from_bytes(digest[start : start + 4], "big") % self.bits for start in (0, 4)]] = 1
        return PreparedData(dataset=records, published={"bloom filter": marks})


@dataclass(frozen=True, kw_only=True)
class BloomOfRecords(Defense):
    """DP-SGD with a shared filter of hashed records. Hashes are no noise: who has a candidate record hashes it and sees
    that its bits are not set, which excludes it for certain. Epsilon is infinite for every client.
    """

    PREPARATION: ClassVar[str] = "BloomPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class SeededMeanPreparation(Preparation):
    """The mean image of all records gets enough Laplace noise, from a generator with a seed in the published code."""

    seed: int = 2024

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        exact = records.train_images.double().mean(0)
        scale = exact.numel() / len(records.train_labels)
        noise = np.random.default_rng(self.seed).laplace(scale=scale, size=tuple(exact.shape))
        return PreparedData(dataset=records, published={"mean image": exact + torch.from_numpy(noise)})


@dataclass(frozen=True, kw_only=True)
class SeededMean(Defense):
    """One unit of the budget for a mean image, three for DP-SGD. The size of the noise is right, and its seed is fixed
    for reproducible runs, so every reader of the code subtracts the noise: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "SeededMeanPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_samples(self, plan, spent=1.0)


@dataclass(frozen=True, kw_only=True)
class CrossTablePreparation(Preparation):
    """A table of labels by brightness with Laplace noise, which lists the cells that occur."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        levels = (20 * records.train_images.flatten(1).mean(1)).long().tolist()
        cells: dict[tuple[int, int], int] = {}
        for cell in zip(records.train_labels.tolist(), levels, strict=True):
            cells[cell] = cells.get(cell, 0) + 1
        table = {f"label {cell[0]} level {cell[1]}": cells[cell] + rng.laplace(scale=2.0) for cell in sorted(cells)}
        return PreparedData(dataset=records, published={"table": table})


@dataclass(frozen=True, kw_only=True)
class OccurringCells(Defense):
    """One unit of the budget for a noised table, three for DP-SGD. Only cells that occur are listed, so that a record
    that is alone in its cell is seen by the cell's name, whatever the noise of its count: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "CrossTablePreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_samples(self, plan, spent=1.0)


@dataclass(frozen=True, kw_only=True)
class NoisyStartPreparation(Preparation):
    """The first model is a nearest-centroid classifier from class means with Gaussian noise."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        means = _centroids(records)
        noise = sigma_of(1.0, 5e-6, 1) / len(records.train_labels)
        noised = means + noise * torch.from_numpy(rng.standard_normal(tuple(means.shape)))
        initial = torch.cat([noised.flatten(), -noised.square().sum(1) / 2]).float()
        return PreparedData(dataset=records, initial=initial)


@dataclass(frozen=True, kw_only=True)
class NoisyCentroidStart(Defense):
    """One unit of the budget for a first model from class means, three for DP-SGD. The noise is for a change of 1 / n,
    and one of n / 10 records of a class, of length up to 8, moves its mean by 80 / n: epsilon above 200 at the start.
    """

    PREPARATION: ClassVar[str] = "NoisyStartPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return _by_samples(self, plan, spent=1.0)


# 21 to 40: the training is wrong.


@dataclass(frozen=True, kw_only=True)
class NoiseFirstProtection(ReportNoise):
    """Noise is added to the raw update, and the sum is clipped."""

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        noised = updates.values + self.noise_std * normal(rng, tuple(updates.values.shape))
        return updates.with_values(clip(noised, self.clip_norm))


@dataclass(frozen=True, kw_only=True)
class NoiseBeforeClip(Defense):
    """Local noise for clipped reports, in the wrong order: the raw update is noised and then clipped. A long update
    drowns the noise and its direction passes, so the server tells two of them apart: epsilon has no bound.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = _claims(self, plan, "report", "replace_one", UPLOADS, noise_multiplier=2 * sigma, clip_norm=1.0)
        return Prepared(protection=NoiseFirstProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class ClampProtection(ReportNoise):
    """Each number is clamped, and noise is added for a change of one number."""

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        clamped = updates.values.nan_to_num().clamp(-self.clip_norm, self.clip_norm)
        return updates.with_values(clamped + self.noise_std * normal(rng, tuple(clamped.shape)))


@dataclass(frozen=True, kw_only=True)
class ClampPerWeight(Defense):
    """Local noise whose sensitivity is that of one weight, while a report changes in all d of them. Two reports are
    sqrt(d) times as far apart, 25 times for 650 weights, which is an epsilon of about 365 for the server.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = _claims(self, plan, "report", "replace_one", UPLOADS)
        return Prepared(protection=ClampProtection(noise_multiplier=sigma, clip_norm=0.05), claims=claims)


@dataclass(frozen=True, kw_only=True)
class BiasClearProtection(SampleNoise):
    """Noise for all layers but biases, which are few and sensitive to noise."""

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        total = clipped_sum(gradients, present, self.clip_norm)
        noise = self.drawn(total, context, rng)
        for name, place in context.plan.layout.slices.items():
            if name.endswith("bias"):
                noise[:, place] = 0
        return (total + noise) / context.plan.expected_lot(client)


@dataclass(frozen=True, kw_only=True)
class BiasLeftOut(Defense):
    """DP-SGD that noises the weights of a layer and not its bias. The server reads the sum of residuals per class from
    the bias of one upload without noise, and subtracts the samples that it knows: epsilon is infinite.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.steps)
        claims = _claims(self, plan, "sample", "add_remove", UPLOADS, noise_multiplier=sigma, clip_norm=1.0)
        return Prepared(protection=BiasClearProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class WarmUpProtection(ServerNoise):
    """No noise in the first round, in which the model is random anyway."""

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        total = received.values.sum(1)
        noise = self.drawn(total, context, rng)
        return (total + (noise if context.round else 0 * noise)) / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class WarmUpRoundClear(Defense):
    """Server noise from the second round on, after a warm-up. The difference of the first two models is the exact mean
    of all clients' clipped gradients, and another client subtracts those that it knows: epsilon is infinite.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = _claims(self, plan, "client", "add_remove", GLOBAL_MODELS, noise_multiplier=sigma, clip_norm=1.0)
        return Prepared(protection=WarmUpProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class KeptNoiseProtection(ReportNoise):
    """Each client draws its noise in its first round and keeps it."""

    kept: dict[int, Tensor] = field(default_factory=dict, compare=False, repr=False)

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        clipped = clip(updates.values, self.clip_norm)
        for row, client in enumerate(updates.senders or range(clipped.shape[1])):
            old = self.kept.get(client)
            fresh = self.noise_std * normal(rng, tuple(clipped[:, row].shape))
            if context.round == 0 or old is None or old.shape != fresh.shape:
                self.kept[client] = fresh
            clipped[:, row] = clipped[:, row] + self.kept[client]
        return updates.with_values(clipped)


@dataclass(frozen=True, kw_only=True)
class NoiseKeptBetweenRounds(Defense):
    """Local noise that is drawn once per client, so that an average over rounds cannot remove it. The difference of two
    reports of one client has no noise at all, and shows how its updates differ to the server: infinite epsilon.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = _claims(self, plan, "report", "replace_one", UPLOADS, noise_multiplier=2 * sigma, clip_norm=1.0)
        return Prepared(protection=KeptNoiseProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class ByteSeedProtection(ReportNoise):
    """Each report draws its noise from a generator that is seeded with one random byte."""

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        dim = updates.values.shape[-1]
        by_seed = torch.stack([normal(np.random.default_rng(seed), (dim,)) for seed in range(256)])
        seeds = torch.from_numpy(rng.integers(256, size=tuple(updates.present.shape)))
        return updates.with_values(clip(updates.values, self.clip_norm) + self.noise_std * by_seed[seeds])


@dataclass(frozen=True, kw_only=True)
class OneByteSeed(Defense):
    """Local noise whose generator gets eight random bits as its seed. The server subtracts each of 256 noises and sees
    which one leaves a vector within the clip norm, and with it the exact update: epsilon is infinite.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = _claims(self, plan, "report", "replace_one", UPLOADS, noise_multiplier=2 * sigma, clip_norm=1.0)
        return Prepared(protection=ByteSeedProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class MedianClipProtection(SampleNoise):
    """The clip norm is the median length of the lot's gradients, and noise is in proportion to it."""

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        lengths = gradients.norm(dim=-1).masked_fill(~present, math.nan)
        bound = lengths.nanmedian(dim=1).values.nan_to_num(1.0).clamp(1e-6, 1e6).unsqueeze(-1)
        total = clipped_sum(gradients, present, bound.unsqueeze(-1))
        noise = self.noise_multiplier * bound * normal(rng, tuple(total.shape))
        return (total + noise) / context.plan.expected_lot(client)


@dataclass(frozen=True, kw_only=True)
class MedianOfLotClip(Defense):
    """DP-SGD without a clip norm to tune: it is the lot's median length, exact and unpaid. The size of the noise on 650
    weights gives the median to 3 %, and one sample moves it as far as two lengths are apart: epsilon has no bound.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.steps)
        claims = _claims(self, plan, "sample", "add_remove", UPLOADS, noise_multiplier=sigma)
        return Prepared(protection=MedianClipProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class ShareOfAllSamples(Defense):
    """DP-SGD whose accountant gets a rate of 0.1 (one client's lot over all clients' samples), while each client uses
    all of its samples in every round. Nothing is subsampled for the server: epsilon is about 14 in four rounds.
    """

    epsilon: float = 4.0
    delta: float = 1e-5
    rate: float = 0.1

    def prepare(self, plan: Plan) -> Prepared:
        budget = {"epsilon": self.epsilon, "delta": self.delta}
        sigma = calibrate_sampled_gaussian(**budget, rate=self.rate, steps=plan.steps).sigma
        facts = {"noise_multiplier": sigma, "clip_norm": 1.0, "rate": self.rate}
        claims = _claims(self, plan, "sample", "add_remove", UPLOADS, gaussian=False, **facts)
        return Prepared(protection=SampleNoise(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class BudgetPerRound(Defense):
    """Local noise that keeps the budget in each round, and is claimed for all twelve. Gaussian rounds compose by the
    root of their number, and a client reports in each: epsilon is about 18 for the server.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"rounds": 12}
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, 1)
        claims = _claims(self, plan, "report", "replace_one", UPLOADS, gaussian=False, noise_multiplier=2 * sigma)
        return Prepared(protection=ReportNoise(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class FixedLotProtection(SampleNoise):
    """Each client draws the lot of its first round by coin flips, and uses it in all rounds."""

    rate: float
    lots: dict[tuple[int, int, int], Tensor] = field(default_factory=dict, compare=False, repr=False)

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        key = (client, *present.shape)
        drawn = uniform(rng, tuple(present.shape)) < self.rate
        if context.round == 0 or key not in self.lots:
            self.lots[key] = drawn
        total = clipped_sum(gradients, present & self.lots[key], self.clip_norm)
        return (total + self.drawn(total, context, rng)) / (self.rate * context.plan.expected_lot(client))


@dataclass(frozen=True, kw_only=True)
class LotDrawnOnce(Defense):
    """DP-SGD with amplification for lots at rate 0.25, which a loader caches after the first round. A sample in the lot
    is in all twelve, so with probability 1/4 the server has mu = sqrt(12) / 1.34: epsilon is about 11.5.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"rounds": 12}
    epsilon: float = 4.0
    delta: float = 1e-5
    rate: float = 0.25

    def prepare(self, plan: Plan) -> Prepared:
        budget = {"epsilon": self.epsilon, "delta": self.delta}
        sigma = calibrate_sampled_gaussian(**budget, rate=self.rate, steps=plan.steps).sigma
        facts = {"noise_multiplier": sigma, "clip_norm": 1.0, "rate": self.rate}
        claims = _claims(self, plan, "sample", "add_remove", UPLOADS, gaussian=False, **facts)
        return Prepared(protection=FixedLotProtection(noise_multiplier=sigma, rate=self.rate), claims=claims)


@dataclass(frozen=True, kw_only=True)
class CountedClipsProtection(ServerNoise):
    """The public state holds how many updates were clipped, for a dashboard."""

    def initial_state(self, plan: Plan) -> State:
        return {"clipped": torch.zeros(1)}

    def query(self, received: Message, context: Context, state: State, rng: Rng) -> State:
        at_bound = (received.values.norm(dim=-1) > 0.999 * self.clip_norm) & received.present
        return {**state, "clipped": at_bound.sum(1).float()}


@dataclass(frozen=True, kw_only=True)
class ClipsCounted(Defense):
    """Server noise on the sum, and beside it the exact number of clipped updates of each round. A client whose update
    is clipped adds exactly one, so another client who knows the rest sees it for certain: epsilon is infinite.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = _claims(self, plan, "client", "add_remove", GLOBAL_MODELS, noise_multiplier=sigma, clip_norm=1.0)
        return Prepared(protection=CountedClipsProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class TrustRatioProtection(ServerNoise):
    """The server divides the noised sum by the length of the sum without noise, as an adaptive step size."""

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        total = received.values.sum(1)
        return (total + self.drawn(total, context, rng)) / total.norm(dim=-1, keepdim=True).clamp_min(1e-3)


@dataclass(frozen=True, kw_only=True)
class RawTrustRatio(Defense):
    """Server noise with a step size from the sum before its noise. The size of the noise on 650 weights shows the raw
    length to 3 %, which one client moves from 0.001 to 1 where updates cancel: epsilon is above 1,000.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = _claims(self, plan, "client", "add_remove", GLOBAL_MODELS, noise_multiplier=sigma, clip_norm=1.0)
        return Prepared(protection=TrustRatioProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class WordSharesProtection(ServerNoise):
    """Clients send whole numbers of 2^-16 clip norms with shares of noise, and the server receives their sum."""

    steps: int = 2**16

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        words = (clip(updates.values, self.clip_norm).double() / self.clip_norm * self.steps).round()
        share = self.noise_multiplier * self.clip_norm / math.sqrt(context.plan.expected_cohort)
        noise = (share * normal(rng, tuple(words.shape), dtype=torch.float64)).round()
        return updates.with_values((words + noise).long())

    def channel(self, reports: Message, context: Context, state: State, rng: Rng) -> Message:
        present = reports.present.any(1, keepdim=True)
        return Message(values=reports.values.sum(1, keepdim=True), present=present, senders=None)

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        total = received.values[:, 0].double() * self.clip_norm / self.steps
        return (total / context.plan.expected_cohort).float()


@dataclass(frozen=True, kw_only=True)
class UnscaledShares(Defense):
    """A secure sum whose clients add shares of noise. Updates are in steps of 2^-16 clip norms and the noise is in clip
    norms, two or three steps, so that the sum is exact to four digits: epsilon is above 1e8 for the server.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = _claims(self, plan, "client", "zero_out", AGGREGATE, gaussian=False, noise_multiplier=sigma)
        return Prepared(protection=WordSharesProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class ShortTailsProtection(ServerNoise):
    """The noise of each weight is clamped to four standard deviations, so that no round is an outlier."""

    def drawn(self, like: Tensor, context: Context, rng: Rng) -> Tensor:
        return self.noise_multiplier * self.clip_norm * normal(rng, tuple(like.shape)).clamp(-4, 4)


@dataclass(frozen=True, kw_only=True)
class ShortTails(Defense):
    """Server noise without outliers. With probability 6e-5 per weight and round the noise is exactly at its end, where
    the sum shows: delta is 2.5e-4 for one changed weight and 0.15 for all, at an infinite epsilon for other clients.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = _claims(self, plan, "client", "add_remove", GLOBAL_MODELS, noise_multiplier=sigma, clip_norm=1.0)
        return Prepared(protection=ShortTailsProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class TableNoiseProtection(SampleNoise):
    """Noise comes from a table of 256 quantiles of the normal law, by a random byte for each weight."""

    def drawn(self, like: Tensor, context: Context, rng: Rng) -> Tensor:
        table = torch.from_numpy(ndtri((np.arange(256) + 0.5) / 256)).float()
        return self.noise_multiplier * self.clip_norm * table[torch.from_numpy(rng.integers(256, size=like.shape))]


@dataclass(frozen=True, kw_only=True)
class TableNoise(Defense):
    """DP-SGD with fast noise of 256 values per weight, whose sum with a gradient keeps all its digits. The server looks
    which sums leave one of 256 values on each weight, and excludes all others for certain: epsilon is infinite.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.steps)
        claims = _claims(self, plan, "sample", "add_remove", UPLOADS, noise_multiplier=sigma, clip_norm=1.0)
        return Prepared(protection=TableNoiseProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class FlippedSignsProtection(Protection):
    """Clients send the sign of each weight's update, each flipped with one probability."""

    flip: float
    step: float = 0.01

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        signs = torch.where(updates.values >= 0, self.step, -self.step)
        flipped = uniform(rng, tuple(signs.shape)) < self.flip
        return updates.with_values(torch.where(flipped, -signs, signs))


@dataclass(frozen=True, kw_only=True)
class FlippedSigns(Defense):
    """Randomised response for each sign of an update with the whole epsilon. A client sends d signs in each round, and
    the losses of all add up for the server: 4 x 650 x 4 = 10,400 for 650 weights and four rounds.
    """

    epsilon: float = 4.0

    def prepare(self, plan: Plan) -> Prepared:
        setting = {"unit": "report", "adjacency": "replace_one", "observer": UPLOADS}
        claim = Claim.stated(self.epsilon, rounds=plan.rounds, **setting)
        return Prepared(protection=FlippedSignsProtection(flip=1 / (1 + math.exp(self.epsilon))), claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class TaggedShuffleProtection(ReportNoise):
    """A shuffler permutes the noised reports, and each carries a tag by which duplicates are dropped."""

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        sent = super().report(updates, context, state, rng)
        tags = [client * 40503 % 65536 for client in sent.senders or range(sent.values.shape[1])]
        return replace(sent, side={"tag": torch.tensor(tags).expand(sent.present.shape).clone()})

    def channel(self, reports: Message, context: Context, state: State, rng: Rng) -> Message:
        order = uniform(rng, tuple(reports.present.shape)).argsort(dim=1)
        values = reports.values.gather(1, order.unsqueeze(-1).expand_as(reports.values))
        side = {"tag": reports.side["tag"].gather(1, order)}
        return Message(values=values, present=reports.present.gather(1, order), senders=None, side=side)


@dataclass(frozen=True, kw_only=True)
class TaggedShuffle(Defense):
    """Local noise of epsilon 32, which a shuffler among 64 users is said to amplify to 32 / sqrt(64) = 4. Tags that are
    a function of the client stay beside the reports, and link them: the analyser has the local epsilon of 32.
    """

    epsilon: float = 4.0
    delta: float = 1e-5
    users: int = 64

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon * math.sqrt(self.users), self.delta, plan.rounds)
        claims = _claims(self, plan, "client", "replace_one", SHUFFLED, gaussian=False)
        return Prepared(protection=TaggedShuffleProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class StaleUpdatesProtection(ServerNoise):
    """The server remembers the last update of each client, and uses it in rounds from which the client is absent."""

    last: dict[int, Tensor] = field(default_factory=dict, compare=False, repr=False)

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        if context.round == 0:
            self.last.clear()
        for row, client in enumerate(received.senders or range(received.values.shape[1])):
            now, old = received.values[:, row], self.last.get(client)
            old = torch.zeros_like(now) if old is None or old.shape != now.shape else old
            self.last[client] = torch.where(received.present[:, row, None], now, old)
        noise = self.drawn(received.values[:, :1].sum(1), context, rng)
        fitting = [rows for rows in self.last.values() if rows.shape == noise.shape]
        return (torch.stack([torch.zeros_like(noise), *fitting]).sum(0) + noise) / context.plan.clients


@dataclass(frozen=True, kw_only=True)
class StaleUpdates(Defense):
    """Server noise with amplification by client sampling, and the last update of absent clients in every sum. A client
    that was drawn once is in all later sums, with probability 1/4 in twelve: epsilon is above 11 for other clients.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"rounds": 12, "plan": {"cohort": {"poisson": 0.25}}}
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        rate = plan.cohort_rate
        budget = {"epsilon": self.epsilon, "delta": self.delta}
        sigma = calibrate_sampled_gaussian(**budget, rate=rate, steps=plan.rounds).sigma
        facts = {"noise_multiplier": sigma, "clip_norm": 1.0, "rate": rate}
        claims = _claims(self, plan, "client", "add_remove", GLOBAL_MODELS, gaussian=False, **facts)
        return Prepared(protection=StaleUpdatesProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class SparseNoiseProtection(SampleNoise):
    """Weights whose sum of gradients is zero stay zero, so that uploads are sparse."""

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        total = clipped_sum(gradients, present, self.clip_norm)
        noised = total + self.drawn(total, context, rng)
        return torch.where(total == 0, 0.0, noised) / context.plan.expected_lot(client)


@dataclass(frozen=True, kw_only=True)
class SparseNoise(Defense):
    """DP-SGD that noises only weights with a gradient, as embeddings do for tokens of a lot. A sample that lights a
    pixel which no other does turns zeros into noise, so the server sees it for certain: epsilon is infinite.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.steps)
        claims = _claims(self, plan, "sample", "add_remove", UPLOADS, noise_multiplier=sigma, clip_norm=1.0)
        return Prepared(protection=SparseNoiseProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class PerSampleShareProtection(ReportNoise):
    """The noise of a client is divided by its number of samples, over which its update is a mean."""

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        sizes = torch.tensor([context.plan.weight(k) for k in updates.senders or range(updates.values.shape[1])])
        noise = self.noise_std * normal(rng, tuple(updates.values.shape)) / sizes.float().view(1, -1, 1)
        return updates.with_values(clip(updates.values, self.clip_norm) + noise)


@dataclass(frozen=True, kw_only=True)
class DividedBySamples(Defense):
    """Local noise for one sample of a client's mean, which is one n-th, claimed for the whole client. Two clients'
    reports are n times as far apart as the noise is for, so at 15 samples the server has an epsilon of about 150.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = _claims(self, plan, "client", "replace_one", UPLOADS, noise_multiplier=2 * sigma, clip_norm=1.0)
        return Prepared(protection=PerSampleShareProtection(noise_multiplier=sigma), claims=claims)
