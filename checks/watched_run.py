"""Checks of one real run: every release is compared with what came in, with the stated noise and with the accountant.

The training runs unchanged. Of a system that follows its claim, any check fails with probability 1e-5 at most
(``audit.ledger``); a failed check is a fault of the system, not an estimate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from ..audit.check import ACCOUNTED, MOVED, PRESENT, SCALE, CheckResult
from ..audit.claim import Claim
from ..audit.finding import Finding, blind_words, checked_alone, with_limit
from ..audit.finite import finite_result, limit_of, limits_of
from ..audit.wording import counted
from .training_record import TrainingRecord
from .watched_lots import ledger_checks, lot_checks
from .watched_noise import noise_checks
from .watched_state import movement_checks
from .watched_sums import sum_checks

_OF_A_RUN: dict[str, dict[str, Any]] = {
    PRESENT: {
        "hook": ("noised step",),
        "cause": "numbers are released without noise",
        "mend": "add noise to every number of the sum in every step",
    },
    SCALE: {
        "hook": ("noised step",),
        "cause": "the noise is smaller than noise multiplier times clip norm",
        "mend": "add the stated noise to the sum itself, or state the smaller noise multiplier to the accountant",
    },
}
"""What is said of a foreign run in place of the words for the hooks of a defense."""


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The results of all checks of one run.

    Args:
        results: one per check; ``passed`` is None where something was not seen, for the reason in ``witness``.
        sampled: whether units take part at a rate below 1.
        unexplained: what moved without noise, and may or may not follow the data.
    """

    results: tuple[CheckResult, ...]
    sampled: bool = False
    unexplained: str = ""

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that failed."""
        return tuple(one for one in self.results if one.passed is False)

    @property
    def unseen(self) -> tuple[CheckResult, ...]:
        """The checks that did not apply or had too little data."""
        return tuple(one for one in self.results if one.passed is None)

    @property
    def blind(self) -> str:
        """Which of lots, clip, noise and accounting no check examined, with the reasons, and what changed without an
        explanation; empty if there is nothing to report.
        """
        return "; ".join(filter(None, (blind_words(self.results, sampled=self.sampled), self.unexplained)))

    @property
    def reported(self) -> str:
        """The epsilon that is reported, and whether the accountant's history implies it, in one line; empty if none.

        Other checks show whether the run follows this history.
        """
        for one in self.results:
            if one.name == ACCOUNTED and one.measured is not None:
                right = "not less than" if one.passed else "less than"
                others = any(other is not one for other in self.failed)
                but = "; the failed checks show that this run does not keep to that history" if others else ""
                words = f"reported epsilon {one.measured:.4g}: {right} the accountant's history implies"
                return f"{words} ({one.witness}){but}"
        return ""

    @property
    def aside(self) -> str:
        """The number of checks that could not be made, with the first reason; empty if all were made."""
        unseen = [one for one in self.unseen if not limit_of([one])]
        return f"not looked at: {counted(len(unseen), 'item')}, first {unseen[0].words}" if unseen else ""

    @property
    def limit(self) -> str:
        """The participants to whom the claim is limited, and why, if NaN or infinity is let through; and what a public
        number of records would show under add/remove.
        """
        return "; ".join(limits_of(self.results))

    def limit_lines(self) -> list[str]:
        """Return one line per limit of the claim, to be printed after the verdict; none where a check failed."""
        return [] if self.failed else [f"limit  {one}" for one in limits_of(self.results)]

    def lines(self) -> list[str]:
        """Return one line per check, failed ones first."""
        words = {False: "FAILED", None: "not checked", True: "passed"}
        ordered = sorted(self.results, key=lambda one: (one.passed is not False, one.passed is None))
        groups: dict[object, list[CheckResult]] = {}
        for one in ordered:
            # Equal reasons, and failures of one check in several cases, stand in one line.
            alike = (
                one.witness
                if one.passed is None
                else one.cause or one.check.cause
                if one.passed is False
                else one.words
            )
            groups.setdefault((one.passed, alike), []).append(one)
        return [
            f"{'limited' if limit_of(group) else words[group[0].passed]}: {_folded(group)}" for group in groups.values()
        ]

    def finding(self, claim: Claim) -> Finding:
        """Return the finding on a claim: REFUTED if a check failed, UNDERPOWERED if no check examined lots, clip, noise
        or accounting. Checks alone never show that a claim holds.
        """
        failed = [one.words for one in self.failed]
        found = checked_alone(claim, failed, not_looked_at=self.blind, aside="" if self.blind else self.aside)
        return with_limit(found, self.results)


def folded_names(names: Sequence[str]) -> str:
    """Return names of checks, each once, with its cases in brackets: ``effective noise multiplier (two rounds)``."""
    cases: dict[str, list[str]] = {}
    for name, _, case in (one.partition(", ") for one in dict.fromkeys(names)):
        cases.setdefault(name, []).extend([case] if case else [])
    return ", ".join(f"{name} ({'; '.join(of)})" if of else name for name, of in cases.items())


def _folded(group: Sequence[CheckResult]) -> str:
    first, *others = group
    if not others:
        return first.words
    if first.passed is None:
        return f"{folded_names([one.name for one in group])}: {first.witness}"
    return f"{first.words}; so does {folded_names([one.name for one in others])}"


def watched(recording: TrainingRecord) -> Watched:
    """Run all checks on the record of one run of a training outside this package.

    Source: each release is recomputed from its rows; the noise tests are exact under the Gaussian law, the tests of
    lots under Poisson sampling.
    """
    let_through = [one for one in recording.releases if one.received is not None and not _is_finite(one.received)]
    # The noise of a sum that is no number cannot be seen; of a finite sum it makes finite numbers.
    finite = replace(recording, releases=tuple(one for one in recording.releases if one not in let_through))
    steps = [f"the sum of step {one.step} is NaN or infinite" for one in let_through]
    found: Sequence[CheckResult] = (
        *([finite_result(steps, steps, whom="records")] if steps else []),
        *sum_checks(finite),
        *noise_checks(finite),
        *lot_checks(recording),
        *ledger_checks(recording),
        *movement_checks(recording),
    )
    if not recording.releases:
        # Without a release, whatever passes compared nothing.
        nothing = "the run released nothing"
        found = [replace(one, passed=None, witness=nothing, measured=None) if one.passed else one for one in found]
    # These checks are of defenses too, whose hooks a foreign training does not have.
    found = [replace(one, **_OF_A_RUN[one.check]) if one.check in _OF_A_RUN else one for one in found]
    rates = [rate for _, rate in recording.accounted_steps]
    unexplained = [one.words for one in found if one.name == MOVED and one.passed is None and recording.moved]
    if let_through and not finite.releases:
        unexplained.append(
            "all sums of the run are NaN or infinite, so that neither clipping nor noise could be checked"
        )
    return Watched(results=tuple(found), sampled=min(rates, default=1.0) < 1, unexplained=next(iter(unexplained), ""))


def _is_finite(values: Tensor) -> bool:
    return bool(values.isfinite().all())
