"""Too few reference models are refused before a run, for each attack by the number that it needs."""

from dataclasses import dataclass

import pytest
from fedassay.attacks.membership.attack_r import AttackR
from fedassay.attacks.membership.lira_offline import LiRAOffline
from fedassay.attacks.membership.lira_online import LiRAOnline
from fedassay.attacks.membership.rmia import RMIA
from fedassay.attacks.membership.shadow_attack import ShadowAttack
from fedassay.suites.config.compatibility import DEFAULT_SHADOWS, too_few


# A candidate is in one model of each pair, and the target's pair is left out.
@pytest.mark.parametrize(("attack", "least"), [(AttackR, 4), (RMIA, 4), (LiRAOffline, 6), (LiRAOnline, 6)])
def test_each_attack_has_its_least_number(attack, least):
    assert f"{least} suffice" in too_few(attack(), least - 2)
    assert [too_few(attack(), count) for count in (least, DEFAULT_SHADOWS)] == ["", ""]


@dataclass(frozen=True, kw_only=True)
class Own(ShadowAttack):
    """Refuses, or fails, whatever the number of models."""

    error: type[Exception] = ValueError

    def scores(self, references, target):
        raise self.error("not today")


@pytest.mark.parametrize("error", [ValueError, KeyError])
def test_an_attack_that_always_fails_is_left_to_the_run(error):
    assert too_few(Own(error=error), 4) == ""
