"""Attacks of the active party on columns: exact solutions, and errors against those of attacks without messages."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.attacks.attack import Level, Undefined
from fedassay.attacks.vertical.embedding_inversion import EmbeddingInversion
from fedassay.attacks.vertical.equality_solving import EqualitySolving
from fedassay.attacks.vertical.imputed_columns import ImputedColumns
from fedassay.attacks.vertical.mean_columns import MeanColumns
from fedassay.audit.observer import ACTIVE_PARTY
from fedassay.fl.streams import normal
from fedassay.fl.vertical.network import VerticalNetwork
from fedassay.fl.vertical.protection import Noise, Noised, VerticalLaw, VerticalProtection
from vertical_adversary import drawn_task, observed, squared_error

RNG = np.random.default_rng(11)
LINEAR = VerticalNetwork(widths=(3, 2), classes=2, embedding=4)
LOGISTIC = VerticalNetwork(widths=(3, 2), classes=4, embedding=4, summed=True)
NARROW = VerticalNetwork(widths=(6, 2), classes=2, embedding=3)
HIDDEN = VerticalNetwork(widths=(3, 2), classes=2, embedding=6, hidden=(12,))


class Noisy(VerticalProtection):
    """Embeddings with noise, or with noise alone."""

    def __init__(self, scale: float, *, kept: float = 1.0, once: bool = False) -> None:
        self.scale, self.kept, self.sends_once = scale, kept, once

    def embeddings(self, values, party, context, rng):
        return self.kept * values + self.scale * normal(rng, tuple(values.shape))


class Signs(VerticalProtection):
    """Each sign, flipped with probability 1/4."""

    def embeddings(self, values, party, context, rng):
        flipped = torch.from_numpy(rng.random(tuple(values.shape)) < 0.25)
        return torch.where((values >= 0) ^ flipped, 1.0, -1.0)


def seen_by_active(network, protection=None, *, people=300, signal=1.0, knowledge=None, **plan):
    task, plan = drawn_task(network, people, signal=signal, **plan)
    return observed(task, plan, protection, observer=ACTIVE_PARTY, **(knowledge or {}))


def error(attack, seen):
    return squared_error(attack.run(seen.view, seen.knowledge, np.random.default_rng(11)), seen.task)


def variance(seen):
    return float(seen.task.people.columns[0].var(0).mean())


@pytest.mark.parametrize("network", [LINEAR, LOGISTIC])
@pytest.mark.parametrize("frozen", [True, False])
def test_as_many_outputs_as_columns_are_solved_exactly(network, frozen):
    """Trained models too: each step's rows give the next step's model (8 steps at rate .5 here)."""
    seen = seen_by_active(network, frozen=frozen, epochs=2, batch=75, learning_rate=0.5)
    assert error(EqualitySolving(), seen) < 1e-5 * variance(seen)


def test_the_initial_model_alone_does_not_explain_later_steps():
    """The control of the exact solution: a party that is not followed is solved with a wrong model."""
    seen = seen_by_active(LINEAR, epochs=2, batch=75, learning_rate=0.5)
    slow = replace(seen.view, plan=replace(seen.view.plan, learning_rate=1e-9))
    assert error(EqualitySolving(), replace(seen, view=slow)) > 1e-3 * variance(seen)


def test_fewer_outputs_than_columns_show_the_rows_projection():
    seen = seen_by_active(NARROW, frozen=True)
    found = EqualitySolving().run(seen.view, seen.knowledge, RNG).rows
    weights = seen.knowledge.initial.bottoms[0][0][0, :-1].double()
    wanted = seen.task.people.columns[0].double() @ weights @ torch.linalg.inv(weights.T @ weights) @ weights.T
    np.testing.assert_allclose(found, wanted.numpy(), atol=1e-5)


def test_published_final_models_explain_frozen_embeddings_and_nearly_the_last_trained_ones():
    attack = EqualitySolving(model="final")
    frozen = seen_by_active(LINEAR, frozen=True)
    assert error(attack, replace(frozen, knowledge=replace(frozen.knowledge, final=frozen.final))) < 1e-6
    trained = seen_by_active(LINEAR, epochs=4)
    known = replace(trained, knowledge=replace(trained.knowledge, final=trained.final))
    assert 1e-6 < error(attack, known) < 0.05 * variance(trained)
    assert (attack.level, EqualitySolving().level) == (Level.WORST_CASE, Level.REALISTIC)
    with pytest.raises(Undefined, match="not published"):
        attack.run(trained.view, trained.knowledge, RNG)


def test_hidden_layers_state_no_linear_equations():
    seen = seen_by_active(HIDDEN)
    with pytest.raises(Undefined, match="hidden layers"):
        EqualitySolving().run(seen.view, seen.knowledge, RNG)


def test_the_noise_of_a_release_averages_out_over_epochs():
    """One epoch and sixteen with the same noise: a sixteenth of the squared error, or with one release all of it."""
    one, many = (seen_by_active(LINEAR, Noisy(0.1), frozen=True, epochs=epochs) for epochs in (1, 16))
    once = seen_by_active(LINEAR, Noisy(0.1, once=True), frozen=True, epochs=16)
    errors = [error(EqualitySolving(), seen) for seen in (one, many, once)]
    assert errors[1] == pytest.approx(errors[0] / 16, rel=0.3)
    assert errors[2] == pytest.approx(errors[0], rel=0.3)


@pytest.mark.parametrize("network", [LINEAR, HIDDEN])
@pytest.mark.parametrize("frozen", [True, False])
def test_embeddings_add_to_what_the_active_party_holds(network, frozen):
    seen = seen_by_active(network, frozen=frozen)
    inverted, imputed, mean = (error(one(), seen) for one in (EmbeddingInversion, ImputedColumns, MeanColumns))
    assert inverted < 0.2 * imputed < 0.2 * mean


def test_randomised_signs_still_add_something():
    law = VerticalLaw(noised=Noised.EMBEDDINGS, channel=torch.tensor([[0.75, 0.25], [0.25, 0.75]]), releases=8)
    seen = seen_by_active(HIDDEN, Signs(), frozen=True, epochs=8, knowledge={"law": law})
    assert error(EmbeddingInversion(), seen) < 0.8 * error(ImputedColumns(), seen)


@pytest.mark.parametrize("noise", list(Noise))
def test_a_published_law_of_much_noise_is_taken_into_account(noise):
    """Noise of 3 on embeddings of about 1: without the law the regression trusts them and is worse than a guess."""
    seen = seen_by_active(LINEAR, Noisy(3.0), frozen=True, epochs=1)
    scale = 3.0 if noise is Noise.GAUSSIAN else 3.0 / np.sqrt(2)
    law = VerticalLaw(noised=Noised.EMBEDDINGS, noise=noise, scale=scale, releases=1)
    informed = error(EmbeddingInversion(), replace(seen, knowledge=replace(seen.knowledge, law=law)))
    assert informed < 1.1 * error(ImputedColumns(), seen)
    assert error(EmbeddingInversion(), seen) > 1.5 * error(ImputedColumns(), seen)


def test_a_law_with_a_clip_is_a_clip():
    class Clipped(VerticalProtection):
        def embeddings(self, values, party, context, rng):
            return values * (0.3 / values.norm(dim=-1, keepdim=True)).clamp(max=1)

    law = VerticalLaw(noised=Noised.EMBEDDINGS, noise=Noise.GAUSSIAN, scale=1e-6, clip=0.3, releases=2)
    seen = seen_by_active(LINEAR, Clipped(), frozen=True)
    informed = error(EmbeddingInversion(), replace(seen, knowledge=replace(seen.knowledge, law=law)))
    assert informed < 0.8 * error(EmbeddingInversion(), seen)


def test_another_passive_partys_columns_are_found_by_its_number():
    network = VerticalNetwork(widths=(2, 3, 0), classes=2, embedding=4)
    seen = seen_by_active(network, frozen=True)
    for party, width in ((0, 2), (1, 3)):
        found = EqualitySolving(party=party).run(seen.view, seen.knowledge, RNG)
        assert (found.party, found.rows.shape[1]) == (party, width)
        assert squared_error(found, seen.task) < 1e-6


@pytest.mark.parametrize("part", [EqualitySolving, EmbeddingInversion, ImputedColumns, MeanColumns])
def test_a_party_that_is_not_passive_is_refused(part):
    seen = seen_by_active(LINEAR)
    with pytest.raises(ValueError, match=r"0\.\.0, got 1"):
        part(party=1).run(seen.view, seen.knowledge, RNG)
