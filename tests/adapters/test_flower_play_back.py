"""Frozen replies through Flower's strategies: the multipliers that are known, and refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedassay[flower]'")

from fedassay.adapters.flower import App
from fedassay.adapters.flower_hooks import FEWER, WEIGHTED
from fedassay.adapters.flower_play_back import CASES, EQUAL, FlowerPlayBack, Replies
from flower_apps import CLIP, accounted, client, client_side, fixed, flower, quiet, server
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod

NODES, DIMENSIONS = 11, 100


def played(kind, **options):
    make = server(
        lambda: flower.DifferentialPrivacyServerSideFixedClipping(kind(**options), 1.0, 1.0, NODES),
        shapes={"weight": (DIMENSIONS,)},
    )
    return FlowerPlayBack(App(make, client(), nodes=NODES).play(), lengths=(10.0,), draws=32)


@pytest.mark.parametrize(
    ("kind", "known", "options"),
    [
        (flower.FedAvg, 1.0, {}),
        (flower.FedAvgM, 1.0, {"server_momentum": 0.9}),
        (flower.FedAdam, 0.257, {}),
        (flower.FedAdagrad, 0.101, {}),
        (flower.FedYogi, 1.9, {}),
        (flower.FedMedian, 0.091, {}),
        (flower.FedTrimmedAvg, 0.636, {}),
        (flower.Krum, 0.091, {"num_malicious_nodes": 1}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_multiplier_of_each_strategy_is_the_known_one(kind, known, options):
    # 3,200 numbers of noise: standard deviation 1.3 %.
    assert played(kind, **options).effective_multiplier() == pytest.approx(known, rel=0.05)


def test_unequal_examples_missing_replies_and_momentum_lower_the_multiplier():
    average = FlowerPlayBack(App(server(), client()).play(), lengths=(10.0,), draws=32)
    _, tenfold, alone, half, two = (average.effective_multiplier(case) for case in CASES)
    assert (tenfold, alone, half, two) == pytest.approx((19 / 100, 0.1, 0.5, 1.0), rel=0.04)
    momentum = played(flower.FedAvgM, server_momentum=0.9)
    median = played(flower.FedMedian)._multiplier(CASES[1])
    assert (median.passed, median.cause) == (False, "")  # No weight explains how far a client moves a median.
    assert momentum.effective_multiplier(CASES[-1]) == pytest.approx(math.sqrt(2 / (1 + 1.9**2)), rel=0.05)


def test_play_back_fails_what_a_wrapper_does_not_bound_and_passes_the_accounted_one():
    results = App(server(), client()).play_back().results()
    failed = [one.name.partition(", ")[2] for one in results.failed]
    assert failed == [CASES[1].words, CASES[2].words, CASES[3].words]
    assert [one.cause for one in results.failed] == [WEIGHTED, WEIGHTED, FEWER]
    assert "an update of zero raises ZeroDivisionError" in " ".join(results.lines())
    ruled_out = App(server(), client(), cases=(EQUAL, CASES[-1])).play_back().results()
    assert ruled_out.failed == ()
    strict = App(server(accounted), client()).play_back().results()
    assert strict.failed == ()
    assert "releases nothing" in " ".join(strict.lines())


def test_cases_that_are_ruled_out_limit_the_claim_and_those_of_ones_own_that_equal_them_do_not():
    found = App(server(), client(), cases=(EQUAL,)).play_back().results()
    assert [one for case in CASES[1:4] for one in (case.words,) if one not in found.limit] == []
    assert (CASES[4].words in found.limit, CASES[4].words in found.aside) == (False, True)
    assert found.limit_lines()[0].startswith("limit ")
    whole = tuple(replace(case, words=f"my {case.words}") for case in CASES)
    assert "deployments" not in App(server(accounted), client(), cases=whole).play_back().results().limit


def test_mods_of_the_clients_are_played_and_a_mod_that_is_missing_is_found():
    correct = FlowerPlayBack(App(server(client_side), client([fixedclipping_mod])).play())
    assert correct.effective_multiplier() == pytest.approx(1.0, rel=0.1)
    assert FlowerPlayBack(App(server(client_side), client()).play()).effective_multiplier() < 1e-3
    local = App(server(quiet), client([LocalDpMod(CLIP, CLIP, 5.0, 1e-5)])).play()
    deviation = math.sqrt(2 * math.log(1.25e5)) / 5
    assert FlowerPlayBack(local).effective_multiplier() == pytest.approx(deviation, rel=0.1)


def test_the_worst_neighbours_move_the_model_as_far_as_the_multiplier_says():
    case = Replies(words="the unit has three times the examples", examples=(3, 1))
    back = FlowerPlayBack(App(server(lambda: fixed(noise=1e-9)), client()).play(), lengths=(10.0,), draws=32)
    within, out, direction = back.worst(case)
    moved = [back.play.releases(rows * CLIP, 0, examples=[1.0] * 9 + [3.0])[-1] @ direction for rows in (within, out)]
    assert float(moved[0] - moved[1]) == pytest.approx(10 * 3 / 12 * CLIP, rel=0.01)
    assert EQUAL.examples == (1, 1)
    assert np.isclose(float(direction.norm()), 1.0)


def test_models_with_empty_arrays_are_played_and_whole_numbers_that_flower_cannot_clip_are_told():
    shapes = {"weight": (40,), "none": (0, 3)}
    empty = FlowerPlayBack(App(server(shapes=shapes), client()).play(), lengths=(10.0,), draws=32)
    assert empty.effective_multiplier() == pytest.approx(1.0, rel=0.07)
    whole = App(server(shapes={"count": (3,)}, dtype=np.int64), client()).play_back().results()
    assert whole.failed == ()
    assert "the strategy raises" in whole.lines()[0]


@pytest.mark.parametrize(("dtype", "least"), [(np.float16, 0.8), (np.float32, 0.95)])
def test_updates_stay_within_the_type_of_the_arrays(dtype, least):
    """As half precision, 1e20 clip norms are infinite, and clip to nothing that is a number."""
    play = App(server(dtype=dtype), client()).play()
    assert play.largest == np.finfo(dtype).max
    # Averages of half precision round, before the noise, by a tenth of the clip norm in 205 numbers.
    assert least < FlowerPlayBack(play).effective_multiplier() < 1.05
