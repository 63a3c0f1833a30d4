"""Forty defenses that claim more privacy than they give, none of which is in ``benchmarks/audited_cases/broken.py``.

1 to 20 leak in data, preparation or model, before or after a correct training; 21 to 40 are wrong in the mechanism.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from correct_parts import (
    SampleNoise,
    ServerNoise,
    Unchanged,
    by_samples,
    by_server,
    claims_of,
    class_counts,
    imaged,
    sigma_of,
)
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.accounting.gaussian import calibrate_sampled_gaussian, poisson_rate
from fedassay.defenses.defense import Defense, Prepared
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.laws import clip, clipped_sum, lot_sum
from fedassay.fl.message import Message
from fedassay.fl.models.network import Network
from fedassay.fl.plan import Plan
from fedassay.fl.preparation import Preparation, PreparedData
from fedassay.fl.protection import Context, Protection, State
from fedassay.fl.streams import normal, uniform
from torch import Tensor

Rng = np.random.Generator


# Correct parts, on which the cases are built.


def _flat(records: Dataset) -> Tensor:
    return records.train_images.flatten(1).double()


def _losses(network: Network, model: Tensor, records: Dataset) -> Tensor:
    """The loss of each training record."""
    logits = network.logits(model, records.train_images)
    return torch.nn.functional.cross_entropy(logits, records.train_labels, reduction="none").double()


# 1 to 20: data, preparation and model.


@dataclass(frozen=True, kw_only=True)
class RoundedMeansPreparation(Preparation):
    """Pixels are centred by means that are rounded to two decimals and published."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        means = (100 * records.train_images.double().mean(0)).round() / 100
        shift = (means - 0.5).float()
        data = imaged(records, (records.train_images - shift).clamp(0, 1), (records.test_images - shift).clamp(0, 1))
        return PreparedData(dataset=data, published={"means": means})


@dataclass(frozen=True, kw_only=True)
class RoundedMeans(Defense):
    """DP-SGD on centred pixels, with published means that two decimals are said to anonymise. Rounding is no noise: a
    record that carries one of 64 means over a rounding edge changes it for certain, so epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "RoundedMeansPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class BestPixelsPreparation(Preparation):
    """The twenty pixels whose correlation with the label's parity is largest are kept, and listed."""

    kept: int = 20

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        rows, wanted = _flat(records), (records.train_labels % 2).double()
        rows, wanted = rows - rows.mean(0), wanted - wanted.mean()
        found = (wanted @ rows).abs() / (rows.norm(dim=0) * wanted.norm()).clamp_min(1e-9)
        chosen = found.argsort(descending=True, stable=True)[: self.kept].sort().values
        mask = torch.zeros(rows.shape[1])
        mask[chosen] = 1.0
        mask = mask.view(records.train_images.shape[1:])
        data = imaged(records, records.train_images * mask, records.test_images * mask)
        return PreparedData(dataset=data, published={"features": chosen.tolist()})


@dataclass(frozen=True, kw_only=True)
class BestPixels(Defense):
    """DP-SGD after a selection of features by their correlation with private labels. The list is an exact function of
    all records: where two pixels are close at its end one record swaps them for certain, so epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "BestPixelsPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan, replaced=True)


def _trained(rows: Tensor, labels: Tensor, classes: int, rate: float, steps: int) -> Tensor:
    """Softmax regression without noise: weights ``(features, classes)``."""
    wanted = torch.nn.functional.one_hot(labels, classes).double()
    weights = torch.zeros(rows.shape[1], classes, dtype=torch.float64)
    for _ in range(steps):
        weights -= rate * rows.T @ ((rows @ weights).softmax(1) - wanted) / len(rows)
    return weights


@dataclass(frozen=True, kw_only=True)
class SeedSitePreparation(Preparation):
    """The first model is trained by one site, on the first thirty records, before the federation starts."""

    records_of_site: int = 30

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        rows, labels = _flat(records)[: self.records_of_site], records.train_labels[: self.records_of_site]
        weights = _trained(rows, labels, records.classes, 0.5, 25)
        initial = torch.cat([weights.T.flatten(), torch.zeros(records.classes)]).float()
        return PreparedData(dataset=records, initial=initial)


@dataclass(frozen=True, kw_only=True)
class SeedSitePretraining(Defense):
    """A trusted server's noise for rounds that start from a model which one site trained on its own records without
    any. That model is sent to all clients and is an exact function of thirty records: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "SeedSitePreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_server(self, plan)


@dataclass(frozen=True, kw_only=True)
class BalancedWeightsPreparation(Preparation):
    """Weights of classes as n / (classes x count), which stand in the shared configuration of the loss."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        weights = len(records.train_labels) / (records.classes * class_counts(records).clamp_min(1).double())
        return PreparedData(dataset=records, published={"class_weight": [round(one, 4) for one in weights.tolist()]})


@dataclass(frozen=True, kw_only=True)
class BalancedClassWeights(Defense):
    """DP-SGD for any replaced sample, with balanced class weights in the shared configuration. Weights are reciprocals
    of exact counts, of which a changed label moves two for certain: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "BalancedWeightsPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan, replaced=True)


@dataclass(frozen=True, kw_only=True)
class ShiftedCopiesPreparation(Preparation):
    """Each record becomes three rows, as it is and shifted by one pixel to the left and to the right, of one client;
    the first thirty are dealt to six clients in order.
    """

    clients: int = 6
    most: int = 40
    used: int = 90

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        images = records.train_images[: self.most]
        rows = torch.stack([images, images.roll(1, -1), images.roll(-1, -1)], dim=1).flatten(0, 1)
        labels = records.train_labels[: self.most].repeat_interleave(3)
        parts = np.array_split(np.arange(min(self.used, len(labels))), self.clients)
        return PreparedData(dataset=imaged(records, rows, train_labels=labels), parts=parts)


@dataclass(frozen=True, kw_only=True)
class ThreeShiftedCopies(Defense):
    """DP-SGD with noise for one row, on data in which each record is three rows by augmentation. One record moves
    three clipped gradients in every step, which is three times the claim's mu: epsilon is about 15 for 4 claimed.
    """

    PREPARATION: ClassVar[str] = "ShiftedCopiesPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class OutliersPreparation(Preparation):
    """Records whose brightness is more than two standard deviations from the mean of all are left out."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        light = _flat(records).mean(1)
        kept = ((light - light.mean()).abs() <= 2 * light.std().clamp_min(1e-6)).nonzero().flatten()
        data = imaged(records, records.train_images[kept], train_labels=records.train_labels[kept])
        return PreparedData(dataset=data)


@dataclass(frozen=True, kw_only=True)
class OutliersRemoved(Defense):
    """DP-SGD for any replaced sample, after outliers by the records' own mean and deviation were left out. How many
    rows are left is public, and falls by one for certain if a record becomes an outlier: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "OutliersPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan, replaced=True)


@dataclass(frozen=True, kw_only=True)
class PatiencePreparation(Unchanged):
    """After the training: the first round after which the clients' mean loss no longer falls."""

    def finish(self, models: Tensor, network: Network, records: Dataset, rng: Rng) -> Mapping[str, Any]:
        curve = [float(_losses(network, model, records).mean()) for model in models]
        worse = [turn for turn in range(1, len(curve)) if curve[turn] >= curve[turn - 1]]
        return {"rounds needed": worse[0] - 1 if worse else len(curve) - 1}


@dataclass(frozen=True, kw_only=True)
class PatienceOnRecords(Defense):
    """DP-SGD whose number of useful rounds is where the private loss stops falling. For given models two losses are
    compared exactly, and one of n records turns the comparison in some per cent of runs: delta is above .001.
    """

    PREPARATION: ClassVar[str] = "PatiencePreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class GridPreparation(Preparation):
    """The learning rate of a grid that gives the lowest loss on the records after four steps."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        rows, losses = _flat(records), []
        rates = [round(float(rate), 3) for rate in np.geomspace(0.25, 16.0, 25)]
        for rate in rates:
            logits = rows @ _trained(rows, records.train_labels, records.classes, rate, 4)
            losses.append(float(torch.nn.functional.cross_entropy(logits, records.train_labels)))
        return PreparedData(dataset=records, algorithm={"learning_rate": rates[int(np.argmin(losses))]})


@dataclass(frozen=True, kw_only=True)
class GridSearchedRate(Defense):
    """Server noise with the best learning rate of a grid, as found by trainings on the records without noise. The rate
    is public, and one record decides between neighbours on the grid that are nearly as good: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "GridPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_server(self, plan)


@dataclass(frozen=True, kw_only=True)
class SortedPreparation(Preparation):
    """Ninety records are sorted by brightness and cut into six shards of equal size."""

    clients: int = 6
    most: int = 90

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        light = _flat(records)[: self.most].mean(1)
        order = light.argsort(stable=True).numpy()
        return PreparedData(dataset=records, parts=np.array_split(order, self.clients))


@dataclass(frozen=True, kw_only=True)
class SortedShards(Defense):
    """DP-SGD for any replaced sample, on shards of records that are sorted by a private feature. A dim record that
    becomes bright moves one record over each edge, so all six clients change by 2 norms: mu is 2.4 times, epsilon 11.7.
    """

    PREPARATION: ClassVar[str] = "SortedPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan, replaced=True)


@dataclass(frozen=True, kw_only=True)
class CodebookPreparation(Preparation):
    """Grey levels are replaced by the nearest of four, which Lloyd's algorithm finds in all records' pixels."""

    levels: int = 4

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        pixels, book = _flat(records).flatten(), torch.linspace(0, 1, self.levels, dtype=torch.float64)
        for _ in range(6):
            nearest = (pixels[:, None] - book).abs().argmin(1)
            sums = torch.zeros_like(book).index_add(0, nearest, pixels)
            counts = torch.bincount(nearest, minlength=self.levels)
            book = torch.where(counts > 0, sums / counts.clamp_min(1), book)

        def coded(images: Tensor) -> Tensor:
            return book[(images.double().unsqueeze(-1) - book).abs().argmin(-1)].float().clamp(0, 1)

        data = imaged(records, coded(records.train_images), coded(records.test_images))
        return PreparedData(dataset=data, published={"codebook": book})


@dataclass(frozen=True, kw_only=True)
class LearnedCodebook(Defense):
    """DP-SGD on images that are compressed by a codebook of grey levels, learned from the same records and shipped with
    the model. Levels are exact means of private pixels, which every record moves: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "CodebookPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class PriorBiasPreparation(Preparation):
    """The output bias of the first model is the logarithm of class frequencies, and its weights are zero."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        counts = class_counts(records).double() + 1
        features = records.train_images[0].numel()
        bias = (counts / counts.sum()).log()
        initial = torch.cat([torch.zeros(records.classes * features, dtype=torch.float64), bias])
        return PreparedData(dataset=records, initial=initial.float())


@dataclass(frozen=True, kw_only=True)
class PriorInBias(Defense):
    """Noise of a trusted server, for a client that is there or not, and a first model whose bias is set to private
    class frequencies against imbalance. Its ten numbers give exact counts of all records: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "PriorBiasPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_server(self, plan, unit="client")


@dataclass(frozen=True, kw_only=True)
class LossCurvePreparation(Unchanged):
    """After the training: the clients' mean loss by round, to three decimals, for the figure of the paper."""

    def finish(self, models: Tensor, network: Network, records: Dataset, rng: Rng) -> Mapping[str, Any]:
        return {"loss curve": [round(float(_losses(network, model, records).mean()), 3) for model in models]}


@dataclass(frozen=True, kw_only=True)
class PublishedLossCurve(Defense):
    """DP-SGD, and then a figure of the training loss by round. For the known models each point is an exact mean over
    private records, which one record moves by more than the last digit: epsilon is infinite for small data.
    """

    PREPARATION: ClassVar[str] = "LossCurvePreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class PrototypesPreparation(Unchanged):
    """After the training: for each class the record of which the model is surest, as an explanation."""

    def finish(self, models: Tensor, network: Network, records: Dataset, rng: Rng) -> Mapping[str, Any]:
        scores = network.logits(models[-1], records.train_images).softmax(-1)
        shown = {}
        for label in range(records.classes):
            own = (records.train_labels == label).nonzero().flatten()
            image = records.train_images[own[scores[own, label].argmax()]] if len(own) else records.test_images[0] * 0
            shown[f"digit {label}"] = image[0]
        return {"prototypes": shown}


@dataclass(frozen=True, kw_only=True)
class ExplainedByPrototypes(Defense):
    """Server noise, and an explanation page that shows the surest private record of each class as it is. Whoever's
    record is shown is known to be there for certain: epsilon is infinite for the reader of the page.
    """

    PREPARATION: ClassVar[str] = "PrototypesPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_server(self, plan, FINAL_MODEL)


@dataclass(frozen=True, kw_only=True)
class RareClassesPreparation(Preparation):
    """Records of classes with fewer than five records are left out, and the other classes are listed."""

    least: int = 5

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        frequent = class_counts(records) >= self.least
        kept = frequent[records.train_labels].nonzero().flatten()
        listed = " ".join(str(label) for label in frequent.nonzero().flatten().tolist())
        if len(kept) < 12:
            # Too few to train on.
            return PreparedData(dataset=records, published={"classes in use": "all"})
        data = imaged(records, records.train_images[kept], train_labels=records.train_labels[kept])
        return PreparedData(dataset=data, published={"classes in use": listed})


@dataclass(frozen=True, kw_only=True)
class RareClassesDropped(Defense):
    """DP-SGD after classes of fewer than five records were dropped, in the name of 5-anonymity. Where a class has four
    or five, one record decides whether it is on the public list, for certain: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "RareClassesPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class ObservedRangePreparation(Preparation):
    """The mean brightness with Laplace noise for the range that the records show, by which images are scaled."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        light = _flat(records).mean(1)
        scale = float(light.max() - light.min()) / len(light)
        noised = float(light.mean()) + float(rng.laplace(0.0, scale))
        factor = 0.5 / min(max(noised, 0.05), 1.0)
        data = imaged(records, (factor * records.train_images).clamp(0, 1), (factor * records.test_images).clamp(0, 1))
        return PreparedData(dataset=data, published={"brightness": noised})


@dataclass(frozen=True, kw_only=True)
class NoiseByObservedRange(Defense):
    """One unit of the budget for a mean with Laplace noise, three for DP-SGD. The noise is in proportion to the range
    of the private records: if all are equal but one there is none without that one, so epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "ObservedRangePreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan, spent=1.0)


@dataclass(frozen=True, kw_only=True)
class OneSidedCountsPreparation(Preparation):
    """Counts of labels with Laplace noise of scale 1/3, and a learning rate that follows from them."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        noised = class_counts(records).double().numpy() + rng.laplace(scale=1 / 3, size=records.classes)
        rate = 0.5 if noised.max() > 0.3 * len(records.train_labels) else 1.0
        return PreparedData(dataset=records, algorithm={"learning_rate": rate}, published={"label counts": noised})


@dataclass(frozen=True, kw_only=True)
class CountsForOneMore(Defense):
    """Three units of the budget for noised label counts, one for DP-SGD, for any replaced sample. The Laplace noise is
    for one record more; a changed label moves two counts, which is epsilon 6 by counts alone and 7 in all, not 4.
    """

    PREPARATION: ClassVar[str] = "OneSidedCountsPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan, spent=3.0, replaced=True)


@dataclass(frozen=True, kw_only=True)
class TargetEncodingPreparation(Preparation):
    """One pixel is replaced by the mean label of all records of the same brightness level; the table is shared."""

    levels: int = 10

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        def levels(images: Tensor) -> Tensor:
            return (images.flatten(1).mean(1) * self.levels).long().clamp(0, self.levels - 1)

        own = levels(records.train_images)
        sums = torch.zeros(self.levels, dtype=torch.float64).index_add(0, own, records.train_labels.double())
        counts = torch.bincount(own, minlength=self.levels)
        table = torch.where(counts > 0, sums / counts.clamp_min(1), (records.classes - 1) / 2)

        def encoded(images: Tensor) -> Tensor:
            changed = images.clone()
            changed[:, 0, 0, 0] = (table[levels(images)] / (records.classes - 1)).float()
            return changed

        data = imaged(records, encoded(records.train_images), encoded(records.test_images))
        return PreparedData(dataset=data, published={"encoding": table})


@dataclass(frozen=True, kw_only=True)
class TargetEncoding(Defense):
    """DP-SGD on records with a target-encoded feature, whose table every client needs. The table has exact means of
    private labels, so whoever knows the other records of a level solves for the last label: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "TargetEncodingPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan, replaced=True)


@dataclass(frozen=True, kw_only=True)
class BestStartPreparation(Preparation):
    """Of twelve random first models the one with the lowest loss on the records."""

    starts: int = 12

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        rows = _flat(records)
        drawn = [np.random.default_rng([3, seed]) for seed in range(self.starts)]
        shape = (rows.shape[1], records.classes)
        models = [torch.from_numpy(0.3 * one.standard_normal(shape)) for one in drawn]
        losses = [float(torch.nn.functional.cross_entropy(rows @ one, records.train_labels)) for one in models]
        best = models[int(np.argmin(losses))]
        return PreparedData(
            dataset=records, initial=torch.cat([best.T.flatten(), torch.zeros(records.classes)]).float()
        )


@dataclass(frozen=True, kw_only=True)
class BestOfTwelveStarts(Defense):
    """DP-SGD from the luckiest of twelve seeds, which is chosen by the loss on private records. The choice is public
    and exact, and one of few records decides it where two seeds are nearly as good: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "BestStartPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class RecallPreparation(Unchanged):
    """After the training: the share of right answers by class, with Laplace noise of scale 1 / n."""

    def finish(self, models: Tensor, network: Network, records: Dataset, rng: Rng) -> Mapping[str, Any]:
        right = network.logits(models[-1], records.train_images).argmax(-1) == records.train_labels
        hits = torch.bincount(records.train_labels[right], minlength=records.classes).double()
        shares = (hits / class_counts(records).clamp_min(1)).numpy()
        return {"recall": shares + rng.laplace(scale=1 / len(records.train_labels), size=records.classes)}


@dataclass(frozen=True, kw_only=True)
class RecallByClass(Defense):
    """One unit of the budget for recalls of ten classes, three for DP-SGD. The noise is for a share of all n records; a
    class has n / 10 or fewer, whose share one record moves ten times as far: epsilon is above 10 for the recalls.
    """

    PREPARATION: ClassVar[str] = "RecallPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan, spent=1.0)


SUM_MU = 0.5


@dataclass(frozen=True, kw_only=True)
class SumOfRecordsPreparation(Preparation):
    """Images are centred by their noised sum; noise is Gaussian for one record of norm 4 more or less."""

    count: float = 1000.0

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        rows = clip(_flat(records), 4.0)
        mean = (rows.sum(0) + 4.0 / SUM_MU * torch.from_numpy(rng.standard_normal(rows.shape[1]))) / self.count
        shift = mean.float().view(1, *records.train_images.shape[1:]) - 0.5
        data = imaged(records, (records.train_images - shift).clamp(0, 1), (records.test_images - shift).clamp(0, 1))
        return PreparedData(dataset=data, published={"mean": mean})


@dataclass(frozen=True, kw_only=True)
class RecordNoiseForClients(Defense):
    """A noised sum of images at mu .5 and rounds at the rest, claimed for a client with all its records. The sum's
    noise is for one record, and a client has fifteen that are alike: mu 7.5 for the sum, epsilon about 60.
    """

    PREPARATION: ClassVar[str] = "SumOfRecordsPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        if poisson_rate("cohort", plan.cohort) < 1:
            raise ValueError("cohorts must be full")
        mu = mu_from_epsilon(self.epsilon, self.delta)
        sigma = math.sqrt(plan.rounds / (mu**2 - SUM_MU**2))
        claims = claims_of(self, plan, "client", "add_remove", GLOBAL_MODELS)
        return Prepared(protection=ServerNoise(noise_multiplier=sigma), claims=claims)


# 21 to 40: the mechanism.


@dataclass(frozen=True, kw_only=True)
class RealCountProtection(ServerNoise):
    """The noised sum is divided by the number of clients that came."""

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        total = received.values.sum(1)
        return (total + self.drawn(total, context, rng)) / received.present.sum(1, keepdim=True).clamp_min(1)


@dataclass(frozen=True, kw_only=True)
class RealCountDivides(Defense):
    """Server noise on the sum, which is divided by the real number of clients. With one client more all noise shrinks
    by n / (n + 1), a seventh for six, and 650 weights show its size to 3 %: epsilon is above 50 in four rounds.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = claims_of(self, plan, "client", "add_remove", GLOBAL_MODELS, noise_multiplier=sigma, clip_norm=1.0)
        return Prepared(protection=RealCountProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class WrongCountProtection(SampleNoise):
    """The sum of a lot is divided by its expected size, and the noise by the number of all samples of the client."""

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        total = clipped_sum(gradients, present, self.clip_norm)
        return total / context.plan.expected_lot(client) + self.drawn(total, context, rng) / context.plan.weight(client)


@dataclass(frozen=True, kw_only=True)
class NoiseOverAllSamples(Defense):
    """DP-SGD on Poisson lots at rate 1/4, whose noise is divided by the client's number of samples and not by that of
    its lot. Noise is a quarter of what the accountant assumes, .26 clip norms: epsilon is about 45.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"plan": {"lot": {"poisson": 0.25}}}
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        rate = poisson_rate("lot", plan.lot)
        sigma = calibrate_sampled_gaussian(epsilon=self.epsilon, delta=self.delta, rate=rate, steps=plan.steps).sigma
        words = {"noise_multiplier": sigma, "clip_norm": 1.0, "rate": rate}
        claims = claims_of(self, plan, "sample", "add_remove", UPLOADS, gaussian=False, **words)
        return Prepared(protection=WrongCountProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class SharedNoiseProtection(Protection):
    """Clients derive the noise of a round from a common secret, and a shuffler permutes their reports."""

    noise_std: float

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        noise = self.noise_std * normal(rng, (updates.values.shape[0], 1, updates.values.shape[2]))
        return updates.with_values(clip(updates.values, 1.0) + noise)

    def channel(self, reports: Message, context: Context, state: State, rng: Rng) -> Message:
        order = uniform(rng, tuple(reports.present.shape)).argsort(dim=1)
        values = reports.values.gather(1, order.unsqueeze(-1).expand_as(reports.values))
        return Message(values=values, present=reports.present.gather(1, order), senders=None)


@dataclass(frozen=True, kw_only=True)
class OneNoiseForAllClients(Defense):
    """Local noise with shuffled reports, where all clients of a round add the same draw. Whoever knows another client's
    update subtracts its report, and the noise is gone from the rest: epsilon is infinite for the analyser.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        std = 2 * sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = claims_of(self, plan, "client", "replace_one", SHUFFLED)
        return Prepared(protection=SharedNoiseProtection(noise_std=std), claims=claims)


@dataclass(frozen=True, kw_only=True)
class OneNumberProtection(SampleNoise):
    """One normal number for all weights of a layer."""

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        total = clipped_sum(gradients, present, self.clip_norm).clone()
        for place in context.plan.layout.slices.values():
            total[:, place] += self.drawn(total[:, :1], context, rng)
        return total / context.plan.expected_lot(client)


@dataclass(frozen=True, kw_only=True)
class OneNumberPerLayer(Defense):
    """DP-SGD whose noise has the shape (runs, 1) and is spread over each layer by broadcasting. The difference of two
    weights of a layer has no noise, and shows the server an exact sum of clipped gradients: epsilon is infinite.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.steps)
        claims = claims_of(self, plan, "sample", "add_remove", UPLOADS, noise_multiplier=sigma, clip_norm=1.0)
        return Prepared(protection=OneNumberProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class LayerClipProtection(SampleNoise):
    """Each layer of a gradient is clipped to the whole clip norm, and noise is that for one such norm."""

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        layers = context.plan.layout.slices.values()
        total = torch.cat([clipped_sum(gradients[..., place], present, self.clip_norm) for place in layers], dim=-1)
        return (total + self.drawn(total, context, rng)) / context.plan.expected_lot(client)


@dataclass(frozen=True, kw_only=True)
class LayersClippedAlone(Defense):
    """DP-SGD that clips weights and bias to norm 1 each and adds noise for norm 1 in all. A sample with both at the
    bound moves the sum by sqrt(2), so mu is 1.41 times that of the claim: epsilon is 6.0 for 4 claimed.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.steps)
        claims = claims_of(self, plan, "sample", "add_remove", UPLOADS)
        return Prepared(protection=LayerClipProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class OneMoreNoiseForReplaced(Defense):
    """DP-SGD with noise for one sample more or less, claimed for a sample that is replaced. Two clipped gradients can
    be opposite and are then two clip norms apart, so mu is twice the claim's: epsilon is 9.1 for 4 (6.4 for one image
    with another label and a model that knows nothing).
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        poisson_rate("lot", plan.lot)
        sigma = sigma_of(self.epsilon, self.delta, plan.steps)
        claims = claims_of(self, plan, "sample", "replace_one", UPLOADS)
        return Prepared(protection=SampleNoise(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class LaplaceLengthProtection(Protection):
    """Laplace noise on reports that are clipped in L2 norm."""

    scale: float

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        rows = clip(updates.values.double(), 1.0)
        noised = rows + torch.from_numpy(rng.laplace(scale=self.scale, size=tuple(rows.shape)))
        return updates.with_values(((noised * 2**14).round() / 2**14).float())


@dataclass(frozen=True, kw_only=True)
class LaplaceForLength(Defense):
    """Local Laplace noise at scale 2 rounds / epsilon, for reports whose L2 norm is at most 1. Laplace noise needs the
    L1 distance, which is up to 2 sqrt(d): pure epsilon is 25 times the claimed 4 for 650 weights, about 102.
    """

    epsilon: float = 4.0

    def prepare(self, plan: Plan) -> Prepared:
        protection = LaplaceLengthProtection(scale=2 * plan.rounds / self.epsilon)
        return Prepared(protection=protection, claims=claims_of(self, plan, "report", "replace_one", UPLOADS))


@dataclass(frozen=True, kw_only=True)
class QuietRoundsProtection(ServerNoise):
    """A sum of less than half a clip norm is released as it is: the training has converged."""

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        total = received.values.sum(1)
        quiet = total.norm(dim=-1, keepdim=True) < 0.5 * self.clip_norm
        return (total + torch.where(quiet, 0.0, self.drawn(total, context, rng))) / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class QuietRounds(Defense):
    """Server noise that is left out where the sum is short, so that a converged model is not spoiled. If other updates
    cancel or vanish, one client decides whether there is noise, and short sums are exact: epsilon is infinite.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = claims_of(self, plan, "client", "add_remove", GLOBAL_MODELS)
        return Prepared(protection=QuietRoundsProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class LoggedRoundsProtection(ServerNoise):
    """One round in fifty is released without noise, at random, so that operators can see how far noise sets it back."""

    share: float = 0.02

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        total = received.values.sum(1)
        logged = uniform(rng, (len(total), 1)) < self.share
        return (total + torch.where(logged, 0.0, self.drawn(total, context, rng))) / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class LoggedRounds(Defense):
    """Server noise, but for a random fiftieth of rounds in which the exact sum moves the model. Four rounds have such
    a one with probability .078, and then the sum tells for certain who was there: delta is .078 for 1e-5 claimed.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = claims_of(self, plan, "client", "add_remove", GLOBAL_MODELS)
        return Prepared(protection=LoggedRoundsProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class PublicLotsProtection(SampleNoise):
    """Lots are drawn by coin flips of a generator whose seed is the number of the round."""

    rate: float

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        coins = uniform(np.random.default_rng([context.round, client]), (present.shape[1],)) < self.rate
        total = clipped_sum(gradients, present & coins, self.clip_norm)
        return (total + self.drawn(total, context, rng)) / (self.rate * context.plan.expected_lot(client))


@dataclass(frozen=True, kw_only=True)
class LotsFromPublicSeed(Defense):
    """DP-SGD with amplification for lots at rate 1/4, which follow from a public seed so that runs can be repeated. The
    server knows the lots: a sample in k of twelve has mu sqrt(k) / 1.34, epsilon 5.9 for the mean k of 3 and 9 for 6.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"rounds": 12}
    epsilon: float = 4.0
    delta: float = 1e-5
    rate: float = 0.25

    def prepare(self, plan: Plan) -> Prepared:
        if poisson_rate("lot", plan.lot) < 1:
            raise ValueError("lots must be full, of which the seed draws a part")
        budget = {"epsilon": self.epsilon, "delta": self.delta, "rate": self.rate, "steps": plan.steps}
        sigma = calibrate_sampled_gaussian(**budget).sigma
        words = {"noise_multiplier": sigma, "clip_norm": 1.0, "rate": self.rate}
        claims = claims_of(self, plan, "sample", "add_remove", UPLOADS, gaussian=False, **words)
        return Prepared(protection=PublicLotsProtection(noise_multiplier=sigma, rate=self.rate), claims=claims)


@dataclass(frozen=True, kw_only=True)
class ShortWordsProtection(Protection):
    """Updates become whole numbers, whose squared length is added up in words of 32 bits before the clip."""

    noise_multiplier: float
    steps: int = 2**10

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        most = float(2**28)
        words = (torch.nan_to_num(updates.values.double()) * self.steps).clamp(-most, most).round().to(torch.int32)
        squares = (words * words).sum(-1, keepdim=True, dtype=torch.int32)
        factor = torch.where(squares > self.steps**2, self.steps / squares.double().clamp_min(1).sqrt(), 1.0)
        return updates.with_values((words.double() * factor / self.steps).float())

    def channel(self, reports: Message, context: Context, state: State, rng: Rng) -> Message:
        total = reports.values.sum(1, keepdim=True)
        noised = total + self.noise_multiplier * normal(rng, tuple(total.shape))
        return Message(values=noised, present=torch.ones(total.shape[:2], dtype=torch.bool), senders=None)

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        return received.values[:, 0] / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class OverflowedLength(Defense):
    """Fixed-point updates are clipped by a squared length that overflows 32 bits: a length above 45 may come out
    negative, and the update passes whole. One client moves the sum by 45 or 10,000 norms: epsilon has no bound.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = claims_of(self, plan, "client", "add_remove", AGGREGATE)
        return Prepared(protection=ShortWordsProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class TopBlockProtection(Protection):
    """A report names one of 32 things, the block of the largest weight and its sign, by randomised response."""

    round_epsilon: float
    blocks: int = 16

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        rows = torch.nan_to_num(updates.values)
        block = torch.arange(rows.shape[-1]) * self.blocks // rows.shape[-1]
        place = rows.abs().argmax(-1, keepdim=True)
        vote = 2 * block[place] + (rows.gather(-1, place) < 0)
        kinds, shape = 2 * self.blocks, tuple(vote.shape)
        true = uniform(rng, shape, dtype=torch.float64) < 1 / (1 + math.exp(-self.round_epsilon))
        other = (vote + torch.from_numpy(rng.integers(1, kinds, shape))) % kinds
        sent = torch.where(true, vote, other)
        return updates.with_values(torch.where(block == sent // 2, 0.02 * (1 - 2 * (sent % 2)), 0.0))


@dataclass(frozen=True, kw_only=True)
class BinaryOddsForBlocks(Defense):
    """Randomised response with 32 answers, told true with the chance e^x / (e^x + 1) of two answers. Each other answer
    has a 31st of the rest, so the ratio is 31 e^x: four rounds at x = 1 have epsilon 4 (1 + ln 31) = 17.7, not 4.
    """

    epsilon: float = 4.0

    def prepare(self, plan: Plan) -> Prepared:
        protection = TopBlockProtection(round_epsilon=self.epsilon / plan.rounds)
        return Prepared(protection=protection, claims=claims_of(self, plan, "report", "replace_one", UPLOADS))


@dataclass(frozen=True, kw_only=True)
class RawMomentumProtection(ServerNoise):
    """The server keeps a momentum of sums without noise, and adds noise for one round to what it releases of it."""

    kept: dict[str, Tensor] = field(default_factory=dict, compare=False, repr=False)

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        total = received.values.sum(1)
        old = self.kept.get("velocity")
        if context.round > 0 and old is not None and old.shape == total.shape:
            total = total + 0.9 * old
        self.kept["velocity"] = total.clone()
        return (total + self.drawn(total, context, rng)) / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class MomentumBeforeNoise(Defense):
    """Server noise for one clipped update, on a momentum that has a client's updates of all rounds. Its move grows to
    1, 1.9, 2.7 and 3.4 clip norms in four rounds, which is 2.4 times the claim's mu: epsilon is 11.6, not 4.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = claims_of(self, plan, "client", "add_remove", GLOBAL_MODELS)
        return Prepared(protection=RawMomentumProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class AdaptiveBoundProtection(Protection):
    """The clip norm of the next round follows the exact share of updates below it, without noise."""

    noise_multiplier: float

    def initial_state(self, plan: Plan) -> State:
        return {"bound": torch.ones(1, 1)}

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        bound = state["bound"].unsqueeze(-1).expand(len(updates.values), 1, 1)
        below = updates.values.norm(dim=-1) <= bound.squeeze(-1)
        clipped = clip(updates.values, bound.expand(-1, updates.values.shape[1], 1))
        return replace(updates.with_values(clipped), side={"below": (below & updates.present).float()})

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        total = received.values.sum(1)
        noise = self.noise_multiplier * state["bound"] * normal(rng, tuple(total.shape))
        return (total + noise) / context.plan.expected_cohort

    def query(self, received: Message, context: Context, state: State, rng: Rng) -> State:
        share = received.side["below"].sum(1, keepdim=True) / context.plan.expected_cohort
        return {"bound": state["bound"] * torch.exp(-0.3 * (share - 0.5))}


@dataclass(frozen=True, kw_only=True)
class AdaptiveBoundUnpaid(Defense):
    """Server noise with quantile clipping, whose count of updates below the bound has no noise. The next bound, which
    all clients receive, gives that count exactly, and a short update more adds one to it: epsilon is infinite.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = claims_of(self, plan, "client", "add_remove", GLOBAL_MODELS)
        return Prepared(protection=AdaptiveBoundProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class ScaledHalvesProtection(ServerNoise):
    """Noise is made in half precision at the scale of the loss, 2^-24, and scaled back."""

    def drawn(self, like: Tensor, context: Context, rng: Rng) -> Tensor:
        noise = self.noise_multiplier * self.clip_norm * normal(rng, tuple(like.shape))
        return (noise / 2**24).half().float() * 2**24


@dataclass(frozen=True, kw_only=True)
class NoiseInScaledHalves(Defense):
    """Server noise that passes through scaled half precision, whose smallest number is 2^-24: noise becomes a whole
    number of clip norms. What the sum has after the point is exact in the release: epsilon is infinite.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = claims_of(self, plan, "client", "add_remove", GLOBAL_MODELS, noise_multiplier=sigma, clip_norm=1.0)
        return Prepared(protection=ScaledHalvesProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class FourCopiesProtection(ServerNoise):
    """The noise is the mean of four draws, of four aggregators that each noise their copy of the sum."""

    def drawn(self, like: Tensor, context: Context, rng: Rng) -> Tensor:
        return torch.stack([ServerNoise.drawn(self, like, context, rng) for _ in range(4)]).mean(0)


@dataclass(frozen=True, kw_only=True)
class MeanOfFourCopies(Defense):
    """Four aggregators noise the same sum, each for the whole budget, and the mean of their answers is released. A mean
    of four independent draws has half of their deviation, so mu is twice that of the claim: epsilon is 9.1, not 4.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = claims_of(self, plan, "client", "add_remove", GLOBAL_MODELS)
        return Prepared(protection=FourCopiesProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class MonitoredProtection(ServerNoise):
    """A second noised sum of each round stands in the public state, for monitoring."""

    def initial_state(self, plan: Plan) -> State:
        return {"monitor": torch.zeros(1, plan.layout.dim)}

    def query(self, received: Message, context: Context, state: State, rng: Rng) -> State:
        total = received.values.sum(1)
        return {"monitor": total + self.drawn(total, context, rng)}


@dataclass(frozen=True, kw_only=True)
class SecondReleaseUnpaid(Defense):
    """Server noise on the sum that moves the model, and on the same sum again for a public dashboard, with noise for
    one release a round. Their mean has 1/sqrt(2) of the noise, so mu is 1.41 times the claim's: epsilon 6.0, not 4.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = claims_of(self, plan, "client", "add_remove", GLOBAL_MODELS)
        return Prepared(protection=MonitoredProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class DrawnAheadProtection(ServerNoise):
    """The noise of the next round is drawn at the end of a round, and kept in the state."""

    def initial_state(self, plan: Plan) -> State:
        return {"noise": torch.zeros(1, plan.layout.dim)}

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        total = received.values.sum(1)
        noise = state["noise"] if context.round else self.drawn(total, context, rng)
        return (total + noise) / context.plan.expected_cohort

    def query(self, received: Message, context: Context, state: State, rng: Rng) -> State:
        return {"noise": self.drawn(received.values.sum(1), context, rng)}


@dataclass(frozen=True, kw_only=True)
class NoiseDrawnAhead(Defense):
    """Server noise that is drawn one round ahead and kept in the state, which is sent to the clients with the model.
    From the second round on every client subtracts it and has the exact sum: epsilon is infinite.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = claims_of(self, plan, "client", "add_remove", GLOBAL_MODELS)
        return Prepared(protection=DrawnAheadProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class BatchClipProtection(SampleNoise):
    """The mean gradient of a lot is clipped, and noise is that of a sum of clipped gradients over the lot's size."""

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        size = context.plan.expected_lot(client)
        mean = clip(lot_sum(gradients, present) / size, self.clip_norm)
        return mean + self.drawn(mean, context, rng) / size


@dataclass(frozen=True, kw_only=True)
class MeanGradientClipped(Defense):
    """DP-SGD that clips the mean gradient of a lot and not that of each sample. One long gradient turns the mean around
    by two clip norms, 2 n times what the noise is for: mu is 30 times the claim's for 15 samples, epsilon above 400.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.steps)
        claims = claims_of(self, plan, "sample", "add_remove", UPLOADS, noise_multiplier=sigma, clip_norm=1.0)
        return Prepared(protection=BatchClipProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class LastNoiseProtection(ServerNoise):
    """Rounds have no noise; the final model gets that of one round."""

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        return received.values.sum(1) / context.plan.expected_cohort

    def broadcast(self, model: Tensor, context: Context, state: State, rng: Rng) -> Tensor:
        if context.round < context.plan.rounds:
            return model
        move = float(context.plan.algorithm.combine(torch.zeros(1, 1), torch.ones(1, 1)))
        return model + move * self.drawn(model, context, rng) / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class FinalNoiseForOneRound(Defense):
    """Only the final model is published, with noise as if a client had been in one round. It adds a clipped update in
    each of four rounds, all alike at worst, so mu is at least four times that of the claim: epsilon is 22, not 4.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, 1)
        claims = claims_of(self, plan, "client", "add_remove", FINAL_MODEL)
        return Prepared(protection=LastNoiseProtection(noise_multiplier=sigma), claims=claims)
