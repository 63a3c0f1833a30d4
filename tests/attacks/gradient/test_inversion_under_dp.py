"""What the benchmark of the same name measures, held as a test: inversion recovers undefended digits and nothing
under DP-SGD.
"""

import numpy as np
import pytest
from fedassay.defenses.sample_level.dp_sgd import DPSGD
from fedassay.defenses.without_dp.none import Undefended

BENCHMARK = "inversion"


@pytest.mark.simulations
def test_undefended_uploads_of_one_image_give_the_image_away(benchmark):
    """20 images: the median of the attack stands 20 dB above that of the best null attack."""
    found = benchmark.compare(Undefended())
    assert np.median(found.attack) > np.median(found.null) + 20
    assert found.lower_end() > 10


@pytest.mark.simulations
def test_under_dp_sgd_the_attack_is_not_shown_to_beat_a_look_at_public_data(benchmark):
    """20 images, paired: the one-sided 99 % lower end of the gain is at most 0."""
    assert benchmark.compare(DPSGD(epsilon=4.0)).lower_end() <= 0
