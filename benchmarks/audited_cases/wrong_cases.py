"""Forty more defenses that claim more privacy than they give, written without sight of the checks.

1 to 20 leak in data, preparation or model, before or after a correct training; 21 to 40 are wrong in the mechanism.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from correct_parts import (
    ReportNoise,
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
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.accounting.gaussian import calibrate_sampled_gaussian
from fedassay.defenses.defense import Defense, Prepared
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.laws import clip, lot_sum
from fedassay.fl.message import Message
from fedassay.fl.models.network import Network
from fedassay.fl.plan import Plan
from fedassay.fl.preparation import Preparation, PreparedData
from fedassay.fl.protection import Context, Protection, State
from fedassay.fl.streams import normal, uniform
from torch import Tensor

Rng = np.random.Generator


# Correct parts, on which the cases are built.


def _summed(reports: Message, total: Tensor) -> Message:
    """What arrives of a secure sum: one row without a sender."""
    return Message(values=total, present=torch.ones(total.shape[:2], dtype=torch.bool), senders=None)


def _kept(records: Dataset, rows: Tensor) -> Dataset:
    """Some of the records alone; all where they are too few to train on."""
    if len(rows) < 12:
        return records
    return imaged(records, records.train_images[rows], train_labels=records.train_labels[rows])


def _flat(images: Tensor) -> Tensor:
    return images.flatten(1).double()


def _slope(network: Network, model: Tensor, images: Tensor, labels: Tensor) -> Tensor:
    """The gradient of the mean loss of some records at a model."""
    point = model.detach().clone().requires_grad_(True)
    loss = torch.nn.functional.cross_entropy(network.logits(point, images), labels)
    return torch.autograd.grad(loss, point)[0].detach()


# 1 to 20: data, preparation and model.


@dataclass(frozen=True, kw_only=True)
class ChecksumPreparation(Preparation):
    """The version of the data set in the experiment log is a checksum of all records."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        digest = hashlib.sha256(records.train_images.numpy().tobytes() + records.train_labels.numpy().tobytes())
        return PreparedData(dataset=records, published={"data version": digest.hexdigest()[:16]})


@dataclass(frozen=True, kw_only=True)
class DataVersionInLog(Defense):
    """DP-SGD whose public experiment log names the version of the private data, as data versioning tools do. Whoever
    knows all records but one hashes both candidates and compares, so epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "ChecksumPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class CoresetPreparation(Preparation):
    """The twelve records that cover the first ninety best (farthest point first) are named by their numbers."""

    chosen: int = 12
    most: int = 90

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        rows = _flat(records.train_images)[: self.most]
        found = [0]
        distance = (rows - rows[0]).norm(dim=1)
        while len(found) < min(self.chosen, len(rows)):
            found.append(int(distance.argmax()))
            distance = torch.minimum(distance, (rows - rows[found[-1]]).norm(dim=1))
        return PreparedData(dataset=records, published={"coreset": found})


@dataclass(frozen=True, kw_only=True)
class NamedCoreset(Defense):
    """Server noise, and the public list of record numbers that active learning picked for expert labels. Farthest-point
    choice is an exact function of all records, so a record far from the rest gets on the list for certain: infinite.
    """

    PREPARATION: ClassVar[str] = "CoresetPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_server(self, plan)


@dataclass(frozen=True, kw_only=True)
class UndersamplePreparation(Preparation):
    """Of each class as many records are kept as the smallest class has."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        counts = class_counts(records)
        least = int(counts[counts > 0].min())
        rows = [(records.train_labels == label).nonzero().flatten()[:least] for label in range(records.classes)]
        return PreparedData(dataset=_kept(records, torch.cat(rows).sort().values))


@dataclass(frozen=True, kw_only=True)
class UndersampledClasses(Defense):
    """DP-SGD for any replaced sample, after all classes were cut to the size of the smallest one. If a record of the
    smallest class gets another label, ten rows vanish at once, and how many are left is public: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "UndersamplePreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan, replaced=True)


@dataclass(frozen=True, kw_only=True)
class SmotePreparation(Preparation):
    """Classes of the first sixty records are filled up to the largest one by points between two of their records."""

    clients: int = 6
    most: int = 60

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        images, labels = records.train_images[: self.most], records.train_labels[: self.most]
        made, names = [images], [labels]
        largest = int(torch.bincount(labels).max())
        for label in range(records.classes):
            own = images[labels == label]
            for number in range(largest - len(own) if len(own) else 0):
                first, second = own[number % len(own)], own[(number + 1) % len(own)]
                made.append(((first + second) / 2).unsqueeze(0))
                names.append(torch.tensor([label]))
        rows = torch.cat(made)
        parts = [np.arange(client, len(rows), self.clients) for client in range(min(self.clients, len(rows)))]
        return PreparedData(dataset=imaged(records, rows, train_labels=torch.cat(names)), parts=parts)


@dataclass(frozen=True, kw_only=True)
class MinorityOversampled(Defense):
    """DP-SGD for any replaced sample, on classes that SMOTE has filled up to the largest. The only record of a class
    is in all its synthetic rows, and their number is public and follows the largest class: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "SmotePreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan, replaced=True)


@dataclass(frozen=True, kw_only=True)
class DecontaminationPreparation(Preparation):
    """Records within a distance of 1.2 of a public test image are left out, one by one."""

    radius: float = 1.2

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        near = torch.cdist(_flat(records.train_images), _flat(records.test_images)).amin(1) < self.radius
        return PreparedData(dataset=_kept(records, (~near).nonzero().flatten()))


@dataclass(frozen=True, kw_only=True)
class DecontaminatedRecords(Defense):
    """DP-SGD for any replaced sample, after records like a public test image were left out, which looks harmless since
    each is judged alone. How many rows are left is public and falls by one for certain: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "DecontaminationPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan, replaced=True)


@dataclass(frozen=True, kw_only=True)
class NeighbourLabelsPreparation(Preparation):
    """Label noise is repaired: each record takes the label of the most similar other record of all clients."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        rows = _flat(records.train_images)
        apart = torch.cdist(rows, rows).fill_diagonal_(math.inf)
        labels = records.train_labels[apart.argmin(1)] if len(rows) > 1 else records.train_labels
        return PreparedData(dataset=imaged(records, records.train_images, train_labels=labels))


@dataclass(frozen=True, kw_only=True)
class RepairedLabels(Defense):
    """DP-SGD for any replaced sample, on labels that were repaired by the nearest record of any client. A record with
    another label relabels all rows it is nearest to, each of which moves by two norms: six rows give epsilon over 40.
    """

    PREPARATION: ClassVar[str] = "NeighbourLabelsPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan, replaced=True)


@dataclass(frozen=True, kw_only=True)
class GroupsOfFivePreparation(Preparation):
    """Records are sorted by brightness, and each five are replaced by their mean; the ends of groups are published."""

    size: int = 5

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        light = _flat(records.train_images).mean(1)
        order, images = light.argsort(stable=True), records.train_images.clone()
        ends = []
        for start in range(0, len(order), self.size):
            group = order[start : start + self.size]
            images[group] = records.train_images[group].mean(0).clamp(0, 1)
            ends.append(float(light[group[-1]]))
        bands = sorted(ends)[:: max(1, len(ends) // 20)]
        return PreparedData(dataset=imaged(records, images), published={"bands": bands})


@dataclass(frozen=True, kw_only=True)
class FiveAnonymousRows(Defense):
    """DP-SGD on rows that microaggregation made 5-anonymous, with the generalised bands of the table. Anonymity of
    groups is no noise: band ends are brightnesses of single records, and one record shifts all groups: infinite.
    """

    PREPARATION: ClassVar[str] = "GroupsOfFivePreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class SyntheticPreparation(Preparation):
    """Two synthetic images of each class are published, drawn from the means and deviations of its pixels."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        rows, made = _flat(records.train_images), {}
        for label in range(records.classes):
            own = rows[records.train_labels == label]
            mean = own.mean(0) if len(own) else torch.zeros(rows.shape[1], dtype=torch.float64)
            spread = own.std(0, unbiased=False) if len(own) else torch.zeros_like(mean)
            drawn = torch.from_numpy(rng.standard_normal((2, rows.shape[1])))
            made[f"digit {label}"] = (mean + spread * drawn).clamp(0, 1)
        return PreparedData(dataset=records, published={"synthetic images": made})


@dataclass(frozen=True, kw_only=True)
class SyntheticImages(Defense):
    """Server noise, and synthetic images of a generator that was fitted to the records, because synthetic data are not
    personal. A pixel that is dark in all other records has deviation zero until one record lights it: infinite.
    """

    PREPARATION: ClassVar[str] = "SyntheticPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_server(self, plan, FINAL_MODEL)


@dataclass(frozen=True, kw_only=True)
class RandomRoundingPreparation(Preparation):
    """Counts of labels are rounded up or down to a multiple of three at random, so that they stay right on average."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        counts = class_counts(records).numpy()
        rest = counts % 3
        up = rng.random(len(counts)) < rest / 3
        return PreparedData(dataset=records, published={"records by class": counts - rest + 3 * up})


@dataclass(frozen=True, kw_only=True)
class RandomRounding(Defense):
    """DP-SGD and a table of classes with random rounding to base three, as statistics offices release. A multiple of
    three is never changed, and one record more makes the next multiple possible (chance 1/3): epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "RandomRoundingPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class InvariantsPreparation(Preparation):
    """Label counts with Laplace noise for a changed label, made consistent with the exact number of even digits."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        counts = class_counts(records).double().numpy()
        noised = np.maximum(counts + rng.laplace(scale=2.0, size=len(counts)), 0.1)
        for start in (0, 1):
            noised[start::2] *= counts[start::2].sum() / noised[start::2].sum()
        return PreparedData(dataset=records, published={"label counts": noised})


@dataclass(frozen=True, kw_only=True)
class ExactSubtotals(Defense):
    """One unit of the budget for noised label counts, three for DP-SGD, for any replaced sample. The counts are scaled
    to exact subtotals, as invariants of a census, which an odd label made even moves by one: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "InvariantsPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan, spent=1.0, replaced=True)


@dataclass(frozen=True, kw_only=True)
class SparseVectorPreparation(Preparation):
    """For each pixel it is told whether more records light it than a threshold with Laplace noise says."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        lit = (_flat(records.train_images) > 0).sum(0).double()
        threshold = 20 + rng.laplace(scale=1.0)
        return PreparedData(dataset=records, published={"often lit": (lit > threshold).long()})


@dataclass(frozen=True, kw_only=True)
class OneNoisyThreshold(Defense):
    """One unit of the budget for 64 answers of the sparse vector technique, three for DP-SGD. Only the threshold has
    noise, so that the order of two counts is exact where it falls between them: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "SparseVectorPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan, spent=1.0)


@dataclass(frozen=True, kw_only=True)
class ContactSheetPreparation(Preparation):
    """Thirty records, drawn at random, are shown in the documentation."""

    shown: int = 30

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        count = len(records.train_labels)
        chosen = rng.choice(count, size=min(self.shown, count), replace=False)
        return PreparedData(dataset=records, published={"examples": records.train_images[chosen]})


@dataclass(frozen=True, kw_only=True)
class ContactSheet(Defense):
    """Server noise, and a contact sheet of thirty random records, of which any given one is unlikely to be one. It is
    shown with probability 30 / n, .02 here and not 1e-5, and is then known for certain: infinite below that delta.
    """

    PREPARATION: ClassVar[str] = "ContactSheetPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_server(self, plan)


@dataclass(frozen=True, kw_only=True)
class PseudoLabelsPreparation(Preparation):
    """Public images get the label of the nearest private record."""

    labelled: int = 120

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        public, private = _flat(records.test_images)[: self.labelled], _flat(records.train_images)
        labels = records.train_labels[torch.cdist(public, private).argmin(1)]
        return PreparedData(dataset=records, published={"pseudo labels": labels.tolist()})


@dataclass(frozen=True, kw_only=True)
class LabelsForPublicImages(Defense):
    """Server noise for a client that is there or not, and a public set of images that the clients' records labelled, as
    distillation needs. The nearest record decides alone without noise, and leaves with its client: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "PseudoLabelsPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_server(self, plan, unit="client")


@dataclass(frozen=True, kw_only=True)
class SplitsPreparation(Preparation):
    """Each pixel becomes a bit by the split between two records' values that separates even from odd digits best."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        rows, even = _flat(records.train_images), (records.train_labels % 2 == 0).double()
        splits = torch.zeros(rows.shape[1], dtype=torch.float64)
        for pixel in range(rows.shape[1]):
            values = rows[:, pixel].unique()
            middle = (values[1:] + values[:-1]) / 2
            if len(middle):
                right = (rows[:, pixel] > middle[:, None]).double()
                share = right @ even / right.sum(1) - (1 - right) @ even / (1 - right).sum(1)
                splits[pixel] = middle[share.abs().argmax()]
        shape = records.train_images.shape[1:]

        def encoded(images: Tensor) -> Tensor:
            return (_flat(images) > splits).float().reshape(len(images), *shape)

        data = imaged(records, encoded(records.train_images), encoded(records.test_images))
        return PreparedData(dataset=data, published={"splits": splits})


@dataclass(frozen=True, kw_only=True)
class TreeSplits(Defense):
    """DP-SGD on the bits of decision stumps, whose splits were fitted to the same records and ship with the model. A
    split is the middle of two private values and separates exactly, so an extreme record moves it: infinite.
    """

    PREPARATION: ClassVar[str] = "SplitsPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class TemperaturePreparation(Unchanged):
    """After the training, the temperature that calibrates the model on the clients' records, by bisection."""

    def finish(self, models: Tensor, network: Network, records: Dataset, rng: Rng) -> Mapping[str, Any]:
        logits = network.logits(models[-1], records.train_images).detach().double()
        own = logits.gather(1, records.train_labels[:, None]).squeeze(1)
        low, high = 0.01, 100.0
        for _ in range(50):
            middle = math.sqrt(low * high)
            # The derivative of the loss by the inverse temperature.
            slope = ((middle * logits).softmax(1) * logits).sum(1).mean() - own.mean()
            low, high = (middle, high) if slope < 0 else (low, middle)
        return {"temperature": 1 / middle}


@dataclass(frozen=True, kw_only=True)
class FittedTemperature(Defense):
    """Server noise, and temperature scaling of the final model on the clients' own records, since one number more can
    hardly hurt. For a known model it solves an exact equation in all records, which each of them moves: infinite.
    """

    PREPARATION: ClassVar[str] = "TemperaturePreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_server(self, plan, FINAL_MODEL)


@dataclass(frozen=True, kw_only=True)
class RunningStatisticsPreparation(Unchanged):
    """After the training, mean and deviation of each output on all records, by which a last layer normalises."""

    def finish(self, models: Tensor, network: Network, records: Dataset, rng: Rng) -> Mapping[str, Any]:
        logits = network.logits(models[-1], records.train_images).detach().double()
        return {"running_mean": logits.mean(0), "running_std": logits.std(0, unbiased=False)}


@dataclass(frozen=True, kw_only=True)
class RunningStatistics(Defense):
    """DP-SGD, and statistics of a normalisation layer that one more pass over the private records estimates. Buffers
    have no gradient and no noise, and every record enters their exact means: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "RunningStatisticsPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class PersonalModelPreparation(Unchanged):
    """After the training one site adapts the final model to its fifteen records, and shares the result."""

    records_of_site: int = 15

    def finish(self, models: Tensor, network: Network, records: Dataset, rng: Rng) -> Mapping[str, Any]:
        images, labels = records.train_images[: self.records_of_site], records.train_labels[: self.records_of_site]
        model = models[-1].clone()
        for _ in range(5):
            model = model - 0.2 * _slope(network, model, images, labels)
        return {"personal model": model}


@dataclass(frozen=True, kw_only=True)
class SharedPersonalModel(Defense):
    """DP-SGD, after which one site fine-tunes the private global model and uploads the result to the model hub. Five
    steps of plain gradient descent carry its fifteen records without any noise: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "PersonalModelPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class PruningPreparation(Unchanged):
    """After the training, the hundred weights whose gradient on the records is largest are kept, and listed."""

    kept: int = 100

    def finish(self, models: Tensor, network: Network, records: Dataset, rng: Rng) -> Mapping[str, Any]:
        slope = _slope(network, models[-1], records.train_images, records.train_labels).double()
        order = (slope * models[-1].double()).abs().argsort(descending=True, stable=True)
        return {"kept weights": order[: self.kept].sort().values.tolist()}


@dataclass(frozen=True, kw_only=True)
class PrunedByImportance(Defense):
    """Server noise, and a pruned final model whose mask follows the importance of weights for the private records. The
    mask is an exact function of their mean gradient, and of few records each one swaps weights of it: infinite.
    """

    PREPARATION: ClassVar[str] = "PruningPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_server(self, plan)


@dataclass(frozen=True, kw_only=True)
class UnlearningPreparation(Unchanged):
    """After the training the first record is unlearned, by a step up its loss, and the new model is published too."""

    rate: float = 0.1

    def finish(self, models: Tensor, network: Network, records: Dataset, rng: Rng) -> Mapping[str, Any]:
        slope = _slope(network, models[-1], records.train_images[:1], records.train_labels[:1])
        return {"model after the erasure": models[-1] + self.rate * slope}


@dataclass(frozen=True, kw_only=True)
class UnlearnedRecord(Defense):
    """DP-SGD, and a second release of the model from which one record was erased on request by gradient ascent. The
    difference of both models is that record's gradient, hence its image, without noise: epsilon is infinite.
    """

    PREPARATION: ClassVar[str] = "UnlearningPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan)


@dataclass(frozen=True, kw_only=True)
class ThreeStatisticsPreparation(Preparation):
    """Label counts, the sum of images and a first model from sums by class, each with noise for the whole budget."""

    mu: float = 0.9249

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        rows = clip(_flat(records.train_images), 4.0)
        marks = torch.nn.functional.one_hot(records.train_labels, records.classes).double()

        def noised(value: Tensor, sensitivity: float) -> Tensor:
            return value + sensitivity / self.mu * torch.from_numpy(rng.standard_normal(tuple(value.shape)))

        counts, light, sums = noised(marks.sum(0), 1.0), noised(rows.sum(0), 4.0), noised(marks.T @ rows, 4.0)
        initial = torch.cat([(sums / 1000).flatten(), torch.zeros(records.classes)]).float()
        return PreparedData(dataset=records, initial=initial, published={"counts": counts, "sum of images": light})


@dataclass(frozen=True, kw_only=True)
class EachReleaseForItself(Defense):
    """Counts, a sum of images, a first model and DP-SGD, each correct and (4, 1e-5)-DP, and so stated for all together.
    One record is in all four, whose squared mu add up to four times that of the claim: epsilon is 9.1, not 4.
    """

    PREPARATION: ClassVar[str] = "ThreeStatisticsPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        return by_samples(self, plan)


# 21 to 40: the mechanism.


@dataclass(frozen=True, kw_only=True)
class MicrobatchProtection(SampleNoise):
    """The mean gradient of each four samples is clipped, and noise is that for one clip norm."""

    size: int = 4

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        runs, dim = len(gradients), gradients.shape[-1]
        total = torch.zeros(runs, dim)
        for start in range(0, gradients.shape[1], self.size):
            rows, here = gradients[:, start : start + self.size], present[:, start : start + self.size]
            total = total + clip(lot_sum(rows, here) / here.sum(1, keepdim=True).clamp_min(1), self.clip_norm)
        return self.size * (total + self.drawn(total, context, rng)) / context.plan.expected_lot(client)


@dataclass(frozen=True, kw_only=True)
class MicrobatchClip(Defense):
    """DP-SGD that clips means of microbatches of four to save memory, with noise for one clip norm. A long gradient
    turns the mean of its microbatch around, by two clip norms: mu is twice the claim's, and epsilon 9.1 instead of 4.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.steps)
        claims = claims_of(self, plan, "sample", "add_remove", UPLOADS)
        return Prepared(protection=MicrobatchProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class VarianceProtection(ServerNoise):
    """The noise is drawn with a variance of noise multiplier times clip norm."""

    def drawn(self, like: Tensor, context: Context, rng: Rng) -> Tensor:
        return math.sqrt(self.noise_multiplier * self.clip_norm) * normal(rng, tuple(like.shape))


@dataclass(frozen=True, kw_only=True)
class DeviationAsVariance(Defense):
    """Server noise at clip norm 4 whose deviation is passed to a library that expects a variance. The deviation is
    sqrt(8.6) instead of 8.6, so mu is 2.9 times that of the claim: epsilon is about 14.5, not 4.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = claims_of(self, plan, "client", "add_remove", GLOBAL_MODELS, noise_multiplier=sigma, clip_norm=4.0)
        return Prepared(protection=VarianceProtection(noise_multiplier=sigma, clip_norm=4.0), claims=claims)


@dataclass(frozen=True, kw_only=True)
class PlainSumProtection(Protection):
    """Clients send whole numbers through a secure aggregation, of which the server learns the sum."""

    steps: int = 2**16

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        return updates.with_values((clip(updates.values, 1.0).double() * self.steps).round().long())

    def channel(self, reports: Message, context: Context, state: State, rng: Rng) -> Message:
        return _summed(reports, reports.values.sum(1, keepdim=True))

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        return (received.values[:, 0].double() / self.steps / context.plan.expected_cohort).float()


@dataclass(frozen=True, kw_only=True)
class SecureSumAlone(Defense):
    """A secure aggregation of clipped updates without noise, since nobody sees an update of a single client. The exact
    sum differs by one client's update for certain, and who knows the others subtracts them: epsilon is infinite.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        claims = claims_of(self, plan, "client", "add_remove", AGGREGATE, gaussian=False)
        return Prepared(protection=PlainSumProtection(), claims=claims)


@dataclass(frozen=True, kw_only=True)
class TopPlacesProtection(ReportNoise):
    """Noise on the tenth of weights that are largest in the update; the others are not sent."""

    share: float = 0.1

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        rows = clip(updates.values, self.clip_norm)
        places = rows.abs().topk(max(1, int(self.share * rows.shape[-1])), dim=-1).indices
        noised = rows + self.noise_std * normal(rng, tuple(rows.shape))
        return updates.with_values(torch.zeros_like(rows).scatter(-1, places, noised.gather(-1, places)))


@dataclass(frozen=True, kw_only=True)
class TopPlacesInClear(Defense):
    """Local noise on the top tenth of an update, with the right size for the values that are sent. Which weights are
    sent is chosen without noise and shown by the zeros elsewhere, so the server tells two updates apart: infinite.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = claims_of(self, plan, "report", "replace_one", UPLOADS)
        return Prepared(protection=TopPlacesProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class RandomWeightsProtection(ReportNoise):
    """Each weight is sent with a probability of its own, and is zero otherwise."""

    rate: float

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        sent = super().report(updates, context, state, rng)
        drawn = uniform(rng, tuple(sent.values.shape)) < self.rate
        return sent.with_values(torch.where(drawn, sent.values, 0.0))


@dataclass(frozen=True, kw_only=True)
class AmplifiedByDroppedWeights(Defense):
    """Local noise with amplification by subsampling at .1, because each weight of an update is sent with that chance.
    The server sees which are sent, and an update of one weight has no amplification then: epsilon is 8.6, not 4.
    """

    epsilon: float = 4.0
    delta: float = 1e-5
    rate: float = 0.1

    def prepare(self, plan: Plan) -> Prepared:
        budget = {"epsilon": self.epsilon, "delta": self.delta, "rate": self.rate, "steps": plan.rounds}
        sigma = calibrate_sampled_gaussian(**budget).sigma
        claims = claims_of(self, plan, "report", "replace_one", UPLOADS, gaussian=False)
        return Prepared(protection=RandomWeightsProtection(noise_multiplier=sigma, rate=self.rate), claims=claims)


@dataclass(frozen=True, kw_only=True)
class UnequalNoiseProtection(ReportNoise):
    """Clients have noise of six different sizes by their number, and a shuffler permutes their reports."""

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        sizes = torch.tensor([1.0 + client % 6 for client in context.senders]).view(1, -1, 1)
        noise = self.noise_std * sizes * normal(rng, tuple(updates.values.shape))
        return updates.with_values(clip(updates.values, self.clip_norm) + noise)

    def channel(self, reports: Message, context: Context, state: State, rng: Rng) -> Message:
        order = uniform(rng, tuple(reports.present.shape)).argsort(dim=1)
        values = reports.values.gather(1, order.unsqueeze(-1).expand_as(reports.values))
        return Message(values=values, present=reports.present.gather(1, order), senders=None)


@dataclass(frozen=True, kw_only=True)
class LinkedByNoiseSize(Defense):
    """Shuffled local noise whose weakest budget is said to be amplified by the root of the number of clients. Clients
    chose noise of different sizes, which names the sender of each report: the analyser has the local epsilon, 9.8.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon * math.sqrt(plan.clients), self.delta, plan.rounds)
        claims = claims_of(self, plan, "client", "replace_one", SHUFFLED, gaussian=False)
        return Prepared(protection=UnequalNoiseProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class LazyProtection(ReportNoise):
    """An update that is shorter than a hundredth of the clip norm is not worth its traffic: zeros are sent instead."""

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        sent = super().report(updates, context, state, rng)
        short = updates.values.norm(dim=-1, keepdim=True) < 0.01 * self.clip_norm
        return sent.with_values(torch.where(short, 0.0, sent.values))


@dataclass(frozen=True, kw_only=True)
class LazyUploads(Defense):
    """Local noise, except that clients skip rounds in which their update is short, as in lazily aggregated gradients.
    A skipped upload shows without noise that the update was short, which another client's is not: epsilon is infinite.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = claims_of(self, plan, "client", "replace_one", UPLOADS)
        return Prepared(protection=LazyProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class RenyiTakenAsEpsilon(Defense):
    """Server noise whose Renyi divergence of order 2 is kept at 4 over all rounds and printed as epsilon. The term
    log(1 / delta) / (order - 1) of the conversion is forgotten: mu is 2, and epsilon at delta 1e-5 is 10.0, not 4.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        # Order times rounds over twice the square of the noise is epsilon.
        sigma = math.sqrt(2 * plan.rounds / (2 * self.epsilon))
        claims = claims_of(self, plan, "client", "add_remove", FINAL_MODEL, gaussian=False, noise_multiplier=sigma)
        return Prepared(protection=ServerNoise(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class MedianProtection(ServerNoise):
    """The median of each weight over the clients, with the noise of a mean."""

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        middle = received.values.median(1).values
        return middle + self.drawn(middle, context, rng) / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class RobustMedian(Defense):
    """A server that is robust by the median of clipped updates, with the noise of their mean. One client more moves a
    median by up to two clip norms and not by a sixth of one: mu is 12 times the claim's, epsilon about 100.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = claims_of(self, plan, "client", "add_remove", GLOBAL_MODELS)
        return Prepared(protection=MedianProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class WeightsNormProtection(SampleNoise):
    """The norm by which a gradient is clipped is that of the layers with hooks, which biases do not have."""

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        counted = torch.ones(gradients.shape[-1])
        for name, place in context.plan.layout.slices.items():
            counted[place] = 0.0 if name.endswith("bias") else 1.0
        rows = clip(gradients, 1e3)
        lengths = (rows * counted).norm(dim=-1, keepdim=True)
        total = lot_sum(rows * (self.clip_norm / lengths.clamp_min(self.clip_norm)), present)
        return (total + self.drawn(total, context, rng)) / context.plan.expected_lot(client)


@dataclass(frozen=True, kw_only=True)
class BiasOutsideNorm(Defense):
    """DP-SGD at clip norm .2 that scales whole gradients by the norm of their weights alone, since biases had no hook.
    A black image has weights' gradient zero and a bias' of .95, unclipped: 4.7 times the claim's mu, epsilon 27.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.steps)
        claims = claims_of(self, plan, "sample", "add_remove", UPLOADS, noise_multiplier=sigma, clip_norm=0.2)
        return Prepared(protection=WeightsNormProtection(noise_multiplier=sigma, clip_norm=0.2), claims=claims)


@dataclass(frozen=True, kw_only=True)
class ShiftsProtection(ServerNoise):
    """A client takes part in every twelfth round, by its number."""

    every: int

    def participates(self, context: Context, state: State, rng: Rng) -> Tensor | None:
        turn = (torch.tensor(context.senders, dtype=torch.long) + context.round) % self.every == 0
        return turn.expand(context.replicas, -1).clone()


@dataclass(frozen=True, kw_only=True)
class ShiftsTakenAsSampling(Defense):
    """Server noise with amplification by client sampling at 1/12, for clients that take turns by a public timetable.
    Everybody knows when a client is in, twice in 24 rounds, at noise of about .9 clip norms: epsilon 7.4, not 4.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"rounds": 24}
    epsilon: float = 4.0
    delta: float = 1e-5
    every: int = 12

    def prepare(self, plan: Plan) -> Prepared:
        budget = {"epsilon": self.epsilon, "delta": self.delta, "rate": 1 / self.every, "steps": plan.rounds}
        sigma = calibrate_sampled_gaussian(**budget).sigma
        claims = claims_of(self, plan, "client", "add_remove", GLOBAL_MODELS, gaussian=False)
        return Prepared(protection=ShiftsProtection(noise_multiplier=sigma, every=self.every), claims=claims)


def _choices(rows: Tensor, blocks: int = 16) -> tuple[Tensor, Tensor]:
    """The choice of each row, ``(R, rows)`` in 0..2 blocks - 1, which is block and sign of its largest weight, and each
    weight's block.
    """
    rows = torch.nan_to_num(rows)
    block = torch.arange(rows.shape[-1]) * blocks // rows.shape[-1]
    place = rows.abs().argmax(-1, keepdim=True)
    return (2 * block[place] + (rows.gather(-1, place) < 0)).squeeze(-1), block


@dataclass(frozen=True, kw_only=True)
class UnaryProtection(Protection):
    """A choice of 32 as 32 bits, each of which is flipped by randomised response."""

    flip: float

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        choice, block = _choices(updates.values)
        bits = torch.nn.functional.one_hot(choice, 32).bool()
        bits = bits ^ (uniform(rng, tuple(bits.shape), dtype=torch.float64) < self.flip)
        # Codes 0, 1, 2 and 3 for none, one or both of a block's two bits.
        code = bits[..., 0::2].float() + 2 * bits[..., 1::2].float()
        return updates.with_values(0.01 * code[..., block])


@dataclass(frozen=True, kw_only=True)
class UnaryEncoding(Defense):
    """Unary encoding of a choice of 32, each bit of which is told by randomised response at the round's whole budget.
    Another choice changes two bits and not one, so each round has twice its budget: epsilon is 8, not 4.
    """

    epsilon: float = 4.0

    def prepare(self, plan: Plan) -> Prepared:
        protection = UnaryProtection(flip=1 / (1 + math.exp(self.epsilon / plan.rounds)))
        return Prepared(protection=protection, claims=claims_of(self, plan, "report", "replace_one", UPLOADS))


@dataclass(frozen=True, kw_only=True)
class CentredNoiseProtection(ServerNoise):
    """The noise of each layer is shifted to a mean of zero, so that no layer drifts."""

    def drawn(self, like: Tensor, context: Context, rng: Rng) -> Tensor:
        noise = super().drawn(like, context, rng).double()
        for place in context.plan.layout.slices.values():
            noise[:, place] -= noise[:, place].mean(1, keepdim=True)
        return noise.float()


@dataclass(frozen=True, kw_only=True)
class CentredNoise(Defense):
    """Server noise that is centred in each layer, which shrinks it by a 650th. The sum over a layer's weights has no
    noise at all, and shows exactly how far a client's update moves that sum: epsilon is infinite for other clients.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = claims_of(self, plan, "client", "add_remove", GLOBAL_MODELS, noise_multiplier=sigma, clip_norm=1.0)
        return Prepared(protection=CentredNoiseProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class RetriesProtection(ServerNoise):
    """Half of the uploads time out after they arrived and are sent again; the aggregator adds up what it gets."""

    def channel(self, reports: Message, context: Context, state: State, rng: Rng) -> Message:
        times = 1.0 + (uniform(rng, (*reports.present.shape, 1)) < 0.5).float()
        total = (times * reports.values).sum(1, keepdim=True)
        return _summed(reports, total + self.drawn(total, context, rng))

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        return received.values[:, 0] / (1.5 * context.plan.expected_cohort)


@dataclass(frozen=True, kw_only=True)
class CountedTwice(Defense):
    """A secure sum with noise for one clipped update of each client, in which retried uploads count twice. With chance
    1/16 a client is doubled in all four rounds, at twice the claim's mu: epsilon is about 8, not 4.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.rounds)
        claims = claims_of(self, plan, "client", "add_remove", AGGREGATE)
        return Prepared(protection=RetriesProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class WritersPreparation(Preparation):
    """Each six records in order are by one writer."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        owners = torch.arange(len(records.train_labels)) // 6
        return PreparedData(dataset=imaged(records, records.train_images, train_owners=owners))


@dataclass(frozen=True, kw_only=True)
class SampleNoiseForWriters(Defense):
    """DP-SGD with noise for one sample more or less, stated for a writer with all samples at all clients. A writer has
    up to six samples in the same lots: mu is 2.4 (one each at six clients) to 6 times the claim's, epsilon 11 to 38.
    """

    PREPARATION: ClassVar[str] = "WritersPreparation"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.steps)
        claims = claims_of(self, plan, "user", "add_remove", UPLOADS)
        return Prepared(protection=SampleNoise(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class WinnerProtection(Protection):
    """Clients vote for a step, the noisy winner is taken, and the step is as long as the winner's share of votes."""

    round_epsilon: float

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        choice, _ = _choices(updates.values)
        votes = torch.nn.functional.one_hot(choice, updates.values.shape[-1]).to(updates.values)
        return updates.with_values(votes)

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        votes = received.values.sum(1)[:, :32].double()
        noise = torch.from_numpy(rng.laplace(scale=2 / self.round_epsilon, size=tuple(votes.shape)))
        winner = (votes + noise).argmax(1, keepdim=True)
        size = 0.1 * votes.gather(1, winner) / context.plan.expected_cohort * (1 - 2 * (winner % 2))
        dim = received.values.shape[-1]
        return torch.where(torch.arange(dim) * 16 // dim == winner // 2, size, 0.0).float()


@dataclass(frozen=True, kw_only=True)
class WinnersShareInClear(Defense):
    """Report-noisy-max over the clients' votes, correct for the winner, whose number of votes sets the length of the
    step. The count is released without fresh noise and grows by one with one more voter: epsilon is infinite.
    """

    epsilon: float = 4.0

    def prepare(self, plan: Plan) -> Prepared:
        protection = WinnerProtection(round_epsilon=self.epsilon / plan.rounds)
        return Prepared(protection=protection, claims=claims_of(self, plan, "client", "add_remove", GLOBAL_MODELS))


@dataclass(frozen=True, kw_only=True)
class TopTwentyProtection(Protection):
    """The twenty weights with the largest noisy size, by one draw of Gumbel noise; a shuffler permutes the reports."""

    round_epsilon: float
    chosen: int = 20
    radius: float = 0.05

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        scores = torch.nan_to_num(updates.values.double()).abs().clamp(max=self.radius) / self.radius
        noise = torch.from_numpy(rng.gumbel(size=tuple(scores.shape)))
        keys = self.round_epsilon / 2 * scores + noise
        places = keys.topk(min(self.chosen, keys.shape[-1]), dim=-1).indices
        return updates.with_values(torch.zeros_like(updates.values).scatter(-1, places, 0.01))

    def channel(self, reports: Message, context: Context, state: State, rng: Rng) -> Message:
        order = uniform(rng, tuple(reports.present.shape)).argsort(dim=1)
        values = reports.values.gather(1, order.unsqueeze(-1).expand_as(reports.values))
        return Message(values=values, present=reports.present.gather(1, order), senders=None)


@dataclass(frozen=True, kw_only=True)
class TwentyForThePriceOfOne(Defense):
    """The exponential mechanism for one weight, of which the twenty best keys are sent and then shuffled. Twenty are
    twenty choices: the local epsilon is up to 20 x 4 = 80 over the rounds, of which a shuffle of six takes little.
    """

    epsilon: float = 4.0

    def prepare(self, plan: Plan) -> Prepared:
        protection = TopTwentyProtection(round_epsilon=self.epsilon / plan.rounds)
        return Prepared(protection=protection, claims=claims_of(self, plan, "client", "replace_one", SHUFFLED))


@dataclass(frozen=True, kw_only=True)
class UniformNoiseProtection(SampleNoise):
    """Uniform noise of the same variance."""

    def drawn(self, like: Tensor, context: Context, rng: Rng) -> Tensor:
        wide = math.sqrt(12) * self.noise_multiplier * self.clip_norm
        return wide * (uniform(rng, tuple(like.shape)) - 0.5)


@dataclass(frozen=True, kw_only=True)
class UniformNoise(Defense):
    """DP-SGD with uniform noise that has the variance of the calibrated Gaussian. A sum that moves by one clip norm
    along a weight leaves the noise's range with a chance of 13 % a round, where it is seen for certain: infinite.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        sigma = sigma_of(self.epsilon, self.delta, plan.steps)
        claims = claims_of(self, plan, "sample", "add_remove", UPLOADS, gaussian=False)
        return Prepared(protection=UniformNoiseProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class CorrelatedProtection(ServerNoise):
    """Most of the last round's noise is taken back, so that noise does not add up in the model."""

    back: float = 0.9
    kept: dict[str, Tensor] = field(default_factory=dict, compare=False, repr=False)

    def drawn(self, like: Tensor, context: Context, rng: Rng) -> Tensor:
        fresh = super().drawn(like, context, rng)
        old = self.kept.get("noise")
        self.kept["noise"] = fresh
        if context.round == 0 or old is None or old.shape != fresh.shape:
            return fresh
        return fresh - self.back * old


@dataclass(frozen=True, kw_only=True)
class CorrelatedForOneVisit(Defense):
    """Correlated noise as in DP-FTRL, z_t - .9 z_(t-1), calibrated for a client that takes part in one round, while all
    take part in all. The decoded updates add up to a norm of 4.9 and not of 1.7: mu is 2.8 times, epsilon about 14.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        one_visit = math.sqrt(sum(0.9 ** (2 * turn) for turn in range(plan.rounds)))
        sigma = one_visit * sigma_of(self.epsilon, self.delta, 1)
        claims = claims_of(self, plan, "client", "add_remove", GLOBAL_MODELS)
        return Prepared(protection=CorrelatedProtection(noise_multiplier=sigma), claims=claims)


@dataclass(frozen=True, kw_only=True)
class SharesProtection(ServerNoise):
    """Each client that comes adds its share of the noise, for a cohort of the expected size."""

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        noise = self.drawn(updates.values, context, rng) / math.sqrt(context.plan.expected_cohort)
        return updates.with_values(clip(updates.values, self.clip_norm) + noise)

    def channel(self, reports: Message, context: Context, state: State, rng: Rng) -> Message:
        return _summed(reports, reports.values.sum(1, keepdim=True))

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        return received.values[:, 0] / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class SharesOfWhoeverComes(Defense):
    """Distributed noise with client sampling at 1/2, whose shares are for the expected cohort, whoever comes. The size
    of the noise shows how many came: all six and one more do with chance 1/128 a round, so epsilon is infinite there.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"plan": {"cohort": {"poisson": 0.5}}}
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        budget = {"epsilon": self.epsilon, "delta": self.delta, "rate": plan.cohort_rate, "steps": plan.rounds}
        sigma = calibrate_sampled_gaussian(**budget).sigma
        claims = claims_of(self, plan, "client", "add_remove", AGGREGATE, gaussian=False)
        return Prepared(protection=SharesProtection(noise_multiplier=sigma), claims=claims)
