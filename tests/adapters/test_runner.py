"""All checks of a system at once, with and without play-back."""

from dataclasses import dataclass

import pytest
from fedassay.adapters.play_back import PlayBack, Step
from fedassay.adapters.runner import is_runner, probe
from foreign_runner import LAYOUT, GaussianRunner


def test_a_system_without_play_back_is_watched():
    assert probe(GaussianRunner()).failed == ()
    assert [one.name for one in probe(GaussianRunner(share=0.1)).failed] == ["noise scale"]
    assert is_runner(GaussianRunner())
    assert not is_runner(GaussianRunner)


@dataclass(frozen=True)
class Played(GaussianRunner):
    """Its step sums rows without a clip; ``takes_rows``: or takes none."""

    takes_rows: bool = True

    def play_back(self, seed):
        if not self.takes_rows:
            raise ValueError("no rows can be played back")
        step = Step(call=lambda rows, seed: rows.sum(0), layout=LAYOUT, clip_norm=1.0, noise_multiplier=1.0)
        return PlayBack(step, seed)


@pytest.mark.parametrize(("takes_rows", "passed"), [(True, False), (False, None)])
def test_a_system_with_play_back_is_also_played(takes_rows, passed):
    last = probe(Played(takes_rows=takes_rows)).results[-1 if not takes_rows else -2]
    assert last.passed is passed
