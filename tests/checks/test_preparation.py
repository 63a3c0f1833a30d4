"""Known answers of preparations: private statistics are refuted, public and paid ones are not."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Claim
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.finding import refutes
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL
from fedassay.checks.neighbour_draws import PreparationSetup
from fedassay.checks.preparation import preparation_checks, why_amplified
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.partitions import IID
from fedassay.fl.plan import Plan
from fedassay.fl.preparation import Pipeline, Preparation, PreparedData
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import Full
from fedassay.fl.streams import Streams, normal

ROUNDS, CLIENTS, SAMPLES = 3, 3, 60


def table(features=6):
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=90)
    images = (rng.normal(size=(90, 1, 1, features)) + labels[:, None, None, None]).astype(np.float32)
    parts = [(torch.from_numpy(images[one]), torch.from_numpy(labels[one])) for one in (slice(72), slice(72, 90))]
    return Dataset.of_parts("table", *parts, classes=3, rows=True)


RECORDS = table()


@dataclass(frozen=True, kw_only=True)
class Clipped(Protection):
    """Gaussian noise on the sum of clipped gradients of every client."""

    noise_std: float
    per_sample = True

    def local_step(self, gradients, present, client, context, state, rng):
        norms = torch.linalg.vector_norm(gradients, dim=2, keepdim=True).clamp_min(1e-12)
        total = (gradients * (1 / norms).clamp(max=1) * present.unsqueeze(-1)).sum(1)
        return (total + self.noise_std * normal(rng, tuple(total.shape))) / context.plan.expected_lot(client)


@dataclass(frozen=True, kw_only=True)
class Made(Preparation):
    made: object = field(compare=False)
    done: object = field(default=None, compare=False)

    def prepare(self, records, rng):
        return self.made(records, rng)


@dataclass(frozen=True, kw_only=True)
class Finished(Made):
    def finish(self, models, network, records, rng):
        return self.done(models, network, records, rng)


def checked(preparation, **settings):
    """The results of both checks by name, and the claim."""
    setup = given(preparation, **settings)
    return {result.name: result for result in preparation_checks(setup)}, setup.claim


def given(
    preparation, *, epsilon=3.0, delta=1e-5, training=None, unit="sample", adjacency="replace_one", observer=AGGREGATE
):
    claim = Claim.stated(epsilon=epsilon, delta=delta, unit=unit, adjacency=adjacency, observer=observer, rounds=ROUNDS)
    reach = 2.0 if adjacency == "replace_one" else 1.0
    protection = Clipped(noise_std=reach * ROUNDS**0.5 / mu_from_epsilon(training or epsilon, delta or 1e-5))

    def plan(task):
        algorithm = FedSGD(**{"learning_rate": 0.5, **task.options})
        facts = {"rounds": ROUNDS, "cohort": Full(), "lot": Full(), "algorithm": algorithm}
        return Plan(sizes=task.sizes, layout=task.network.layout, **facts)

    settings = {"model": "logistic", "partition": IID(), "clients": CLIENTS, "samples": SAMPLES}
    return PreparationSetup(
        pipeline=Pipeline(preparation=preparation, records=RECORDS, streams=Streams(0), **settings),
        plan=plan,
        protection=lambda plan: protection,
        claim=claim,
        clients=2,
        samples=20,
        most=2**14,
        seed=0,
    )


def of(made, **settings):
    return checked(Made(made=made), **settings)


def refuted(found, claim):
    """The name of the check whose evidence refutes the claim."""
    return [name for name, one in found.items() if one.evidence is not None and refutes(claim, one.evidence)]


def passed(found):
    return {name: one.passed for name, one in found.items()}


BOTH = {"preparation": True, "preparation and training": True}


def public(records, rng):
    scale = records.test_images.std(0) + 1e-6
    return PreparedData(
        dataset=replace(records, train_images=(records.train_images / scale).clamp(-3, 3)), published={"scale": scale}
    )


def private_mean(records, rng):
    mean = records.train_images.mean(0)
    return PreparedData(
        dataset=replace(records, train_images=records.train_images - mean), published={"mean": mean, "public": 3}
    )


def initial(records, rng):
    weights = torch.zeros(3, 6)
    for label in range(3):
        weights[label] = records.train_images[records.train_labels == label].flatten(1).mean(0)
    return PreparedData(dataset=records, initial=torch.cat([weights.flatten(), torch.zeros(3)]))


def columns(records, rng):
    features = records.train_images.flatten(1).double()
    scores = torch.corrcoef(torch.cat([features, records.train_labels.double()[:, None]], 1).T)[-1, :-1].abs()
    kept = scores.argsort(descending=True)[:3].sort().values
    return PreparedData(
        dataset=replace(
            records, train_images=records.train_images[..., kept], test_images=records.test_images[..., kept]
        ),
        published={"columns": [f"feature {one}" for one in kept.tolist()]},
    )


def by_label(records, rng):
    return PreparedData(dataset=records, parts=[(records.train_labels == one).nonzero().flatten() for one in range(3)])


def rate(records, rng):
    return PreparedData(dataset=records, algorithm={"learning_rate": 0.1 + float(records.train_images.var()) / 1e6})


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize(
    ("made", "published"),
    [(private_mean, "mean"), (initial, "initial"), (columns, "columns"), (rate, "algorithm.learning_rate")],
)
def test_a_private_statistic_without_noise_refutes_the_claim_and_is_named(made, published, adjacency):
    found, claim = of(made, adjacency=adjacency)
    assert refuted(found, claim) == ["preparation"]
    assert (
        found["preparation"].witness.count(f"{published} differs between two neighbouring data sets in every draw") == 1
    )
    assert "record " in found["preparation"].witness


def test_sizes_by_private_labels_are_refuted_where_records_are_replaced_and_public_where_they_are_added():
    found, claim = of(by_label)
    assert refuted(found, claim) == ["preparation"]
    assert "rows of each client differs" in found["preparation"].witness
    assert passed(of(by_label, adjacency="add_remove")[0]) == BOTH


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_public_steps_are_not_refuted(adjacency):
    assert passed(of(public, adjacency=adjacency)[0]) == BOTH
    counted = of(
        lambda records, rng: PreparedData(dataset=records, published={"rows": len(records.train_labels)}),
        adjacency=adjacency,
    )
    assert passed(counted[0]) == BOTH


def frequent_labels(noise):
    def made(records, rng):
        counts = torch.bincount(records.train_labels, minlength=3).numpy() + noise * rng.laplace(size=3)
        return PreparedData(dataset=records, published={"frequent": "".join(map(str, np.flatnonzero(counts >= 3)))})

    return made


def noisy_mean(scale_of):
    def made(records, rng):
        light = records.train_images.clamp(0, 1).flatten(1).double().mean(1).numpy()
        noised = light.mean() + scale_of(light) / len(light) * rng.laplace()
        return PreparedData(dataset=records, published={"light": noised})

    return made


@pytest.mark.parametrize(
    ("broken", "correct", "size"),
    [
        # Every label has more than twenty records, and fewer are dropped: in small data sets one record decides.
        (frequent_labels(0), frequent_labels(2), "among 6 records"),
        # Equal records show no range, and one that differs shows that there was none.
        (noisy_mean(np.ptp), noisy_mean(lambda light: 1.0), "among 40 records"),
    ],
)
def test_what_shows_in_other_data_sets_alone_is_refuted_there(broken, correct, size):
    found, claim = of(broken)
    assert refuted(found, claim) == ["preparation"]
    assert size in found["preparation"].witness
    assert passed(of(correct)[0]) == BOTH


def test_clients_drawn_anew_are_no_leak():
    def shuffled(records, rng):
        order = rng.permutation(len(records.train_labels))
        return PreparedData(dataset=records, parts=np.array_split(order, CLIENTS))

    assert passed(of(shuffled)[0]) == BOTH


def test_a_preparation_that_fails_on_a_neighbour_is_not_looked_at():
    def refuses(records, rng):
        if float(records.train_images.max()) > 20:
            raise RuntimeError("outlier")
        return PreparedData(dataset=records)

    found, _ = of(refuses)
    assert set(passed(found).values()) == {None}
    assert all(one.witness.startswith("not looked at: ") for one in found.values())
    assert "Made.prepare: RuntimeError: outlier" in found["preparation"].witness


def test_a_search_that_time_ends_early_is_not_looked_at(monkeypatch):
    monkeypatch.setattr("fedassay.checks.preparation.SECONDS", 0.0)
    found = of(public)[0]["preparation"]
    assert found.passed is None
    assert "0 of 10 kinds" in found.witness


def test_units_that_are_not_known_are_not_looked_at():
    found, _ = of(public, unit="user")
    assert found["preparation"].passed is None
    assert "it is not known which records belong to one user" in found["preparation"].witness


def test_a_difference_without_noise_refutes_a_large_epsilon_where_nothing_is_drawn():
    found, claim = of(private_mean, epsilon=20.0)
    assert refuted(found, claim) == ["preparation"]
    assert of(private_mean, epsilon=60.0)[0]["preparation"].passed is False


def noised(scales, *, clip=1.0):
    """Sums of features in [0, clip], each with Laplace noise of this many times its sensitivity."""

    def made(records, rng):
        values = records.train_images.flatten(1)[:, : len(scales)].clamp(0, clip).double()
        sums = {
            f"sum {place}": float(values[:, place].sum()) + rng.laplace(scale=clip * scale)
            for place, scale in enumerate(scales)
        }
        return PreparedData(dataset=records, published=sums)

    return made


@pytest.mark.long
@pytest.mark.simulations
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize(
    ("scales", "broken"), [((1.0,), False), ((0.5,), True), ((2.0, 2.0), False), ((1.0, 1.0), True)]
)
def test_noise_pays_for_what_is_published_together(scales, broken, adjacency):
    found, claim = of(noised(scales), epsilon=1.0, delta=0.0, training=0.01, adjacency=adjacency)
    assert refuted(found, claim) == (["preparation"] if broken else [])
    assert broken or passed(found) == BOTH


@pytest.mark.simulations
@pytest.mark.parametrize(("scale", "broken"), [(1.0, False), (0.3, True)])
def test_a_text_that_noise_chooses_is_tried(scale, broken):
    centre = float(RECORDS.train_images[..., 0].clamp(0, 1).sum())

    def made(records, rng):
        total = float(records.train_images[..., 0].clamp(0, 1).sum()) + rng.laplace(scale=scale)
        return PreparedData(dataset=records, published={"size": "large" if total > centre else "small"})

    found, claim = of(made, epsilon=1.0, delta=0.0, training=0.01)
    assert refuted(found, claim) == (["preparation"] if broken else [])
    assert broken or passed(found) == BOTH


@pytest.mark.simulations
@pytest.mark.long
@pytest.mark.parametrize("broken", [False, True])
def test_a_noised_statistic_by_which_data_are_scaled_is_tried_run_by_run(broken):
    def made(records, rng):
        values = records.train_images.clamp(0, 1)
        total = float(values[..., 0].sum()) + rng.laplace(scale=0.4 if broken else 1.0)
        return PreparedData(dataset=replace(records, train_images=values / (1 + abs(total))), published={"sum": total})

    found, claim = of(made, epsilon=1.0, delta=0.0, training=0.01)
    assert refuted(found, claim) == (["preparation"] if broken else [])
    assert broken or passed(found) == BOTH


@pytest.mark.simulations
@pytest.mark.parametrize(("adjacency", "unit"), [("add_remove", "sample"), ("add_remove", "client")])
def test_a_hidden_scale_that_moves_all_rows_is_refuted_by_trials_of_the_training(adjacency, unit):
    def made(records, rng):
        low, high = records.train_images.amin(0), records.train_images.amax(0)
        return PreparedData(dataset=replace(records, train_images=(records.train_images - low) / (high - low)))

    found, claim = of(made, adjacency=adjacency, unit=unit)
    assert refuted(found, claim) == ["preparation and training"]
    assert found["preparation"].passed


@pytest.mark.simulations
def test_a_hidden_statistic_that_hardly_moves_other_rows_is_not_refuted():
    def made(records, rng):
        clipped = records.train_images.clamp(-3, 3)
        return PreparedData(dataset=replace(records, train_images=clipped - clipped.mean(0) / 100))

    found, claim = of(made)
    assert refuted(found, claim) == []
    assert passed(found) == BOTH


def nothing(records, rng):
    return PreparedData(dataset=records)


def threshold(part, noise=0.0):
    def done(models, network, records, rng):
        images = getattr(records, f"{part}_images")
        likely = torch.softmax(network.logits(models[-1], images.clamp(-3, 3)), 1).amax(1)
        return {"threshold": float(likely.mean()) + noise * rng.laplace() / len(images)}

    return Finished(made=nothing, done=done)


@pytest.mark.simulations
@pytest.mark.parametrize("observer", [AGGREGATE, FINAL_MODEL])
def test_a_threshold_that_is_tuned_on_private_records_is_refuted(observer):
    found, claim = checked(threshold("train"), observer=observer)
    assert refuted(found, claim) == ["preparation and training"]


@pytest.mark.simulations
@pytest.mark.long
def test_a_threshold_that_one_record_rarely_moves_is_refuted_on_few_records():
    def done(models, network, records, rng):
        outputs = torch.softmax(network.logits(models[-1], records.train_images.clamp(-3, 3)), 1)
        right, likely = outputs.argmax(1) == records.train_labels, outputs.amax(1)
        shares = [float((right == (likely > cut)).float().mean()) for cut in (0.3, 0.5, 0.7, 0.9)]
        return {"threshold": int(np.argmax(shares))}

    found, claim = checked(Finished(made=nothing, done=done))
    assert refuted(found, claim) == ["preparation and training"]
    assert "of 16 records" in found["preparation and training"].witness


@pytest.mark.simulations
@pytest.mark.parametrize(("part", "noise"), [("test", 0.0), ("train", 10.0)])
def test_a_threshold_of_public_records_or_with_noise_is_not_refuted(part, noise):
    found, claim = checked(threshold(part, noise))
    assert refuted(found, claim) == []
    assert passed(found) == BOTH


def quantile(part="train", epsilon=0.0):
    """The 90 % quantile of the scores of the later half of rows, with Laplace noise that pays for any move in [0, 1].

    The record that all other trials change is not among them.
    """

    def done(models, network, records, rng):
        images = getattr(records, f"{part}_images").clamp(-3, 3)
        images = images[len(images) // 2 :]
        likely = torch.softmax(network.logits(models[-1], images), 1).amax(1)
        noise = rng.laplace() / epsilon if epsilon else 0.0
        return {"threshold": float(likely.quantile(0.9)) + noise}

    return Finished(made=nothing, done=done)


@pytest.mark.long
@pytest.mark.simulations
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("observer", [AGGREGATE, FINAL_MODEL])
def test_a_quantile_of_private_scores_is_refuted_given_the_models(observer, adjacency):
    found, claim = checked(quantile(), observer=observer, adjacency=adjacency)
    assert refuted(found, claim) == ["preparation and training"]


@pytest.mark.long
@pytest.mark.simulations
@pytest.mark.parametrize(("part", "epsilon"), [("test", 0.0), ("train", 1.0)])
def test_a_quantile_of_public_scores_or_with_paid_noise_is_not_refuted(part, epsilon):
    found, claim = checked(quantile(part, epsilon), epsilon=4.0, training=3.0)
    assert refuted(found, claim) == []
    assert passed(found) == BOTH


def test_an_end_that_fails_on_a_neighbour_is_not_looked_at():
    def done(models, network, records, rng):
        if float(records.train_images.max()) > 20:
            raise RuntimeError("out of range")
        return {"threshold": 0.5}

    found, claim = checked(Finished(made=nothing, done=done))
    assert refuted(found, claim) == []
    assert found["preparation and training"].passed is None
    assert "out of range" in found["preparation and training"].witness


def sampled(share, *, blanked=False):
    """Each record by a coin of its own; ``blanked``: zeros take the place of those that are left out."""

    def made(records, rng):
        kept = torch.from_numpy(rng.random(len(records.train_labels)) < share)
        if blanked:
            images = records.train_images.masked_fill(~kept.view(-1, 1, 1, 1), 0.0)
            return PreparedData(
                dataset=replace(records, train_images=images, train_labels=records.train_labels.where(kept, 0))
            )
        parts = {name: getattr(records, name)[kept] for name in ("train_images", "train_labels")}
        return PreparedData(dataset=replace(records, **parts))

    return made


def without_images(records, rng):
    """What is left of a record, its label, shows it in every draw."""
    kept = torch.from_numpy(rng.random((len(records.train_labels), 1, 1, 1)) < 0.5)
    return PreparedData(dataset=replace(records, train_images=records.train_images.where(kept, 0.0)))


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("blanked", [False, True])
def test_runs_on_records_that_coins_leave_out_are_no_evidence(share, blanked):
    """At a share of 1/2, epsilon log(1 + 2 (e^3 - 1)) of the training alone is epsilon 3 of the whole. Of a record that
    is there with probability .9, no draw of 64 would lack it with a probability of .001.
    """
    setup = given(Made(made=sampled(share, blanked=blanked)))
    assert "may amplify privacy" in why_amplified(replace(setup, pipeline=replace(setup.pipeline, samples=20)))


@pytest.mark.parametrize(
    "made",
    [sampled(1.0), without_images, public, private_mean, by_label, noisy_mean(lambda records: 1.0)],
    ids=lambda made: made.__name__,
)
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_runs_on_records_that_are_always_there_are_evidence(made, adjacency):
    assert why_amplified(given(Made(made=made), adjacency=adjacency)) == ""
