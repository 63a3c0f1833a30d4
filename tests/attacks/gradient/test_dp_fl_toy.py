"""The DP-FL toy of the reference: what each observer learns, in the order that theory predicts."""

import pytest

BENCHMARK = "dp_fl_toy"


@pytest.mark.simulations
def test_the_toy_leaks_in_what_the_server_sees_and_not_in_the_final_model(benchmark):
    """One seed, 100 members, 100 outsiders at every client: an AUC near .8 has a standard error of about .03, one near
    .5 of .041 (outsiders' scores at ten clients count as one); three allowed.
    """
    named = ("loss of the final model", "FedMIA, cosine", "mean cosine", "likelihood ratio, all but one bit known")
    found = benchmark.areas(0, outsiders=100, named=named)
    loss, fedmia, cosine, known = (found[name] for name in named)
    assert benchmark.ceiling() == pytest.approx(0.915, abs=5e-4)
    for name, error in zip(named, (0.041, 0.03, 0.03, 0.023), strict=True):
        assert found[name] == pytest.approx(benchmark.ATTACKS[name][2], abs=3 * error)
    assert loss < fedmia < known
    assert loss < cosine < known
