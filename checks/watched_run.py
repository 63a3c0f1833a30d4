"""Checks of one real run: every release is compared with what came in, with the stated noise and with the accountant.

The training runs unchanged. Of a system that follows its claim, any check fails with probability 1e-5 at most
(``audit.ledger``); a failed check is a fault of the system, not an estimate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..audit.check import PRESENT, SCALE, CheckResult
from ..audit.claim import Claim
from ..audit.finding import Finding, blind_words, checked_alone
from .training_record import TrainingRecord
from .watched_lots import ledger_checks, lot_checks
from .watched_noise import noise_checks
from .watched_state import movement_checks
from .watched_sums import sum_checks


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The results of all checks of one run.

    Args:
        results: one per check; ``passed`` is None where something was not seen, for the reason in ``witness``.
        sampled: whether units take part at a rate below 1.
    """

    results: tuple[CheckResult, ...]
    sampled: bool = False

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that failed."""
        return tuple(one for one in self.results if one.passed is False)

    @property
    def unseen(self) -> tuple[CheckResult, ...]:
        """The checks that did not apply or saw too little."""
        return tuple(one for one in self.results if one.passed is None)

    @property
    def blind(self) -> str:
        """Which of lots, clip, noise and accounting no check looked at, with the reasons; empty if all were."""
        return blind_words(self.results, sampled=self.sampled)

    def lines(self) -> list[str]:
        """Return one line per check, failed ones first."""
        words = {False: "FAILED", None: "not checked", True: "passed"}
        ordered = sorted(self.results, key=lambda one: (one.passed is not False, one.passed is None))
        return [f"{words[one.passed]}: {one.words}" for one in ordered]

    def finding(self, claim: Claim) -> Finding:
        """Return the finding on a claim: REFUTED where a check failed, UNDERPOWERED where lots, clip, noise or
        accounting were not looked at. Checks alone never show that a claim holds.
        """
        return checked_alone(claim, [one.words for one in self.failed], not_looked_at=self.blind)


def watched(recording: TrainingRecord) -> Watched:
    """Check one run of a foreign training.

    Source: each release is recomputed from its rows; the noise tests are exact under the Gaussian law, the tests of
    lots under Poisson sampling.
    """
    found: Sequence[CheckResult] = (
        *sum_checks(recording),
        *noise_checks(recording),
        *lot_checks(recording),
        *ledger_checks(recording),
        *movement_checks(recording),
    )
    if not recording.releases:
        # Without a release, whatever passes compared nothing.
        nothing = "the run released nothing"
        found = [replace(one, passed=None, witness=nothing, measured=None) if one.passed else one for one in found]
    # These checks are of defenses too, whose hooks a foreign training does not have.
    found = [replace(one, hook=("noised step",)) if one.check in (PRESENT, SCALE) else one for one in found]
    rates = [rate for _, rate in recording.accounted_steps]
    return Watched(results=tuple(found), sampled=min(rates, default=1.0) < 1)
