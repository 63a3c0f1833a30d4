"""The DP-FL toy of the reference: what each observer learns, in the order that theory predicts."""

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def toy():
    """The benchmark of the same name."""
    path = Path(__file__).parents[3] / "benchmarks" / "dp_fl_toy.py"
    spec = importlib.util.spec_from_file_location("dp_fl_toy", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_toy_leaks_in_what_the_server_sees_and_not_in_the_final_model(toy):
    """One seed, 100 members, 100 outsiders at every client: an AUC near .8 has a standard error of about .03, one near
    .5 of .041 (outsiders' scores at ten clients count as one); three allowed.
    """
    named = ("loss of the final model", "FedMIA, cosine", "mean cosine", "likelihood ratio, all but one bit known")
    found = toy.areas(0, outsiders=100, named=named)
    loss, fedmia, cosine, known = (found[name] for name in named)
    assert toy.ceiling() == pytest.approx(0.915, abs=5e-4)
    for name, error in zip(named, (0.041, 0.03, 0.03, 0.023), strict=True):
        assert found[name] == pytest.approx(toy.ATTACKS[name][2], abs=3 * error)
    assert loss < fedmia < known
    assert loss < cosine < known
