"""Implementation checks of claims: what each looks at, in the field's terms and in plain words, and what it found."""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # The command line lists metrics and checks without numpy.
    from .measurement import Measurement


class Subject(Enum):
    """What a check says something about; checks of one subject replace each other."""

    MOVE = "how far one unit moves what is released"
    NOISE = "presence and size of the noise"
    FRESH = "noise that is drawn anew"
    EPSILON = "the claim's epsilon itself"
    MESSAGE = "everything else that is received"


MOVE, NOISE, FRESH, EPSILON = Subject.MOVE, Subject.NOISE, Subject.FRESH, Subject.EPSILON


class Check(str):
    """The name of an implementation check, with what it looks at. It makes the check's results.

    Args:
        name: as rows, texts and tables print it.
        subjects: what it looks at, as far as reports count it.
        plain: what it compares, for readers who do not know the terms of its name; empty where the name says it.
        measures: what its number is, for ``fedassay list metrics``; empty where rows never hold it.
        of_layers: whether it looks at the noise of single layers.
        of_runs: whether it looks at many independent runs, in which clients and samples are drawn as the plan states.
        assumes: where ``detects`` of its results is a true epsilon: of which violation.
    """

    subjects: tuple[Subject, ...]
    plain: str
    measures: str
    of_layers: bool
    of_runs: bool
    assumes: str

    def __new__(
        cls,
        name: str,
        *subjects: Subject,
        plain: str = "",
        measures: str = "",
        of_layers: bool = False,
        of_runs: bool = False,
        assumes: str = "",
    ) -> "Check":
        check = super().__new__(cls, name)
        check.subjects, check.plain, check.measures = subjects, plain, measures
        check.of_layers, check.of_runs, check.assumes = of_layers, of_runs, assumes
        return check

    @property
    def metric(self) -> str:
        """The metric of its result rows."""
        return f"check_{self.replace(' ', '_')}"

    def skipped(self, reason: str, **also: Any) -> "CheckResult":
        """Return the result of a check that does not apply or could not look, with the reason."""
        return CheckResult(name=self, passed=None, witness=reason, **also)

    def failed(
        self, witness: str, measured: float | None = None, allowed: float | None = None, **also: Any
    ) -> "CheckResult":
        """Return the result of a check that failed."""
        return CheckResult(name=self, passed=False, witness=witness, measured=measured, allowed=allowed, **also)

    def passes(
        self, witness: str, measured: float | None = None, allowed: float | None = None, **also: Any
    ) -> "CheckResult":
        """Return the result of a check that passed."""
        return CheckResult(name=self, passed=True, witness=witness, measured=measured, allowed=allowed, **also)

    def at_most(
        self, measured: float, allowed: float, *, witness: str, slack: float = 0.0, **also: Any
    ) -> "CheckResult":
        """Return the result of a check that passes if ``measured`` is at most ``allowed + slack``."""
        passed = bool(measured <= allowed + slack)
        return CheckResult(name=self, passed=passed, witness=witness, measured=measured, allowed=allowed, **also)

    def at_least(self, measured: float, allowed: float, *, witness: str, **also: Any) -> "CheckResult":
        """Return the result of a check that passes if ``measured`` is at least ``allowed``."""
        passed = bool(measured >= allowed)
        return CheckResult(
            name=self, passed=passed, witness=witness, measured=measured, allowed=allowed, relation=">=", **also
        )


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of one implementation check of one claim.

    Args:
        name: such as "sensitivity" or "noise scale".
        passed: whether the measured number is within its limit; None where the check does not apply, for the reason in
            ``witness``.
        measured, allowed: the number and its limit, in the check's own unit, which ``unit`` names.
        relation: of ``measured`` to ``allowed`` in a check that passes.
        witness: which runs show it.
        detects: the smallest violation at which the check fails with probability 0.9: a share of the law's noise
            ("noise scale"), or a true epsilon; None where it is not known.
        compared, not_compared: parts of a message that were and were not compared, the latter with the reason.
        evidence: the measurement of a check that is a statistical test of the claim itself, and so may refute it.
    """

    name: str
    passed: bool | None
    witness: str
    measured: float | None = None
    allowed: float | None = None
    relation: str = "<="
    unit: str = ""
    detects: float | None = None
    compared: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()
    evidence: "Measurement | None" = None

    @property
    def words(self) -> str:
        """A description of the check, as in ``sensitivity 10 > 1 allowed (a row of 10 clip norms along an unused
        weight)``.
        """
        if self.measured is None or self.allowed is None:
            return f"{self.name}: {self.witness}"
        opposite = {"<=": ">", ">=": "<"}
        sign = opposite[self.relation] if self.passed is False else self.relation
        limit = "allowed" if self.relation == "<=" else "required"
        # More digits where few would print two different numbers alike.
        digits = 4 if self.passed is not False or f"{self.measured:.4g}" != f"{self.allowed:.4g}" else 12
        return f"{self.name} {self.measured:.{digits}g} {sign} {self.allowed:.{digits}g} {limit} ({self.witness})"


_GAUSSIAN = "its noise is smaller by one factor in all weights and rounds, and Gaussian along the unit's move"
"""The violation of which results of measured moves and noise state a true epsilon."""

SENSITIVITY = Check(
    "sensitivity",
    MOVE,
    plain="how far one unit moves the result",
    measures="largest change of a release when one row is removed; compared with the published sensitivity",
)
AS_SAMPLED = Check(
    "sensitivity as sampled",
    plain="how far one unit moves the result, where participants are drawn at random",
    measures="largest change of a release by one row, with cohorts and lots as sampled",
    of_runs=True,
    assumes=_GAUSSIAN,
)
PARTICIPATION = Check(
    "participation as accounted", measures="how often a unit is drawn, against the sampling rate of its claim"
)
ONCE = Check("rows used once", measures="change of all rounds together by one row, over their noise")
UNUSED = Check("rows outside the lot", measures="largest change of a release by rows that no lot holds")
FOLLOWED = Check("rows that follow releases", measures="epsilon of rows that are chosen by earlier releases")
TOGETHER = Check("arrays together")
EXTREME = Check(
    "extreme rows",
    plain="records with extreme values",
    measures="largest number received for a huge, infinite or undefined row over that of an ordinary row",
)
PRESENT = Check(
    "noise present",
    NOISE,
    measures="share of a layer's coordinates that other noise draws change; the smallest over layers",
    of_layers=True,
)
SCALE = Check(
    "noise scale",
    NOISE,
    plain="the size of the noise",
    measures="standard deviation of the noise, divided by that of the published noise law",
    of_layers=True,
)
BETWEEN_CLIENTS = Check(
    "noise fresh between clients", FRESH, measures="largest cosine between the noise of two clients in one round"
)
BETWEEN_ROUNDS = Check(
    "noise fresh between rounds", FRESH, measures="largest cosine between the noise of one sender in two rounds"
)
EVERY_DIRECTION = Check(
    "noise in every direction", measures="standard deviation of a weight's noise given that of other weights"
)
GIVEN_CLIENTS = Check(
    "noise given other clients",
    plain="whether the noise follows from that of other clients",
    measures="standard deviation of a client's noise given that of other clients",
)
GIVEN_ROUNDS = Check(
    "noise given other rounds",
    plain="whether the noise follows from that of other rounds",
    measures="standard deviation of a round's noise given that of other rounds",
)
DISTRIBUTION = Check(
    "noise distribution",
    plain="how the noise is distributed",
    measures="share of the noise within some standard deviations of its centre; at most the law's",
)
OTHER_DATA = Check(
    "noise under other data", measures="standard deviation of the noise over the law's, on short, long or no gradients"
)
OWN_IN_RUNS = Check(
    "noise of its own in every run",
    plain="whether each run has noise of its own",
    measures="releases that equal one of another run bit for bit",
)
COVERS_MOVES = Check(
    "noise where a unit moves the release", measures="largest change by one unit over the noise in the same direction"
)
BARE = Check("noise in every number of every run")
OWN_IN_REPLICAS = Check(
    "noise of its own in every replica",
    FRESH,
    plain="whether each run has noise of its own",
    measures="share of releases without the canary that repeat another replica's",
)
EVERY_ROUND = Check(
    "noise scale in every round",
    NOISE,
    plain="the size of the noise in each single round",
    measures="spread of releases without the canary over the noise law's, worst round",
    of_runs=True,
)
ARRIVES = Check(
    "canary arrives",
    plain="whether the planted unit reaches the result",
    measures="shift of the releases by the canary, divided by the shift that the noise law predicts",
    of_runs=True,
)
VECTORS = Check("noise of many vectors", measures="released vectors that equal one of another run bit for bit")
NUMBERS = Check("noise of many values", measures="values from which the numbers of reports on one input seem drawn")
LAW_EPSILON = Check(
    "epsilon of the law",
    EPSILON,
    plain="the ε that follows from the published noise",
    measures="epsilon that the published noise law implies, bounded from below; at most the claim's",
)
LAW_CURVE = Check(
    "curve of the law",
    EPSILON,
    plain="the error rates that follow from the published noise",
    measures="delta that the published noise law implies at an epsilon of the claim's trade-off curve",
)
MEASURED = Check(
    "epsilon of the releases",
    MOVE,
    NOISE,
    EPSILON,
    plain="the ε of the published values",
    measures="epsilon of measured sensitivity and noise, without a law; at most the claim's",
    assumes=_GAUSSIAN,
)
PURE = Check(
    "pure epsilon of the releases",
    MOVE,
    NOISE,
    EPSILON,
    plain="the ε of the published values, at δ = 0",
    measures="epsilon of shift and noise of any shape, at delta 0; at most the claim's",
    assumes="the privacy losses of its releases exceed those of the runs by one factor",
)
FITS = Check(
    "law fits the reports",
    MOVE,
    NOISE,
    FRESH,
    plain="whether reports have the published noise",
    of_runs=True,
    assumes="the privacy losses of its reports exceed the law's by one factor",
)
POSSIBLE = Check("reports are possible")
PLACE = Check("places of shuffled reports", FRESH)
LOCAL = Check("reports before the shuffler", MOVE, NOISE)
AMPLIFIED = Check(
    "epsilon of the shuffled law", EPSILON, plain="the ε of shuffled reports that follows from the published noise"
)
ORDER = Check("order of shuffled reports", measures="how far the places of shuffled reports depend on their senders")
EVENTS = Check(
    "reports on extreme rows",
    measures="lower bound on epsilon from events of reports on rows that differ most",
    assumes="the privacy losses of its reports exceed those of the runs by one factor",
)
MASKS = Check(
    "masked words",
    plain="masked numbers",
    measures="how far the masked words of a secure sum are from uniform and independent",
)
MESSAGE = Check(
    "whole message",
    Subject.MESSAGE,
    measures="channels of what the observer receives that change with one unit and not with noise",
)
PUBLIC_STATE = Check(
    "public state",
    Subject.MESSAGE,
    plain="what the server keeps between rounds",
    measures="largest change of a number in the public state when one row changes",
)
ODDS = Check(
    "numbers that a unit moves", measures="epsilon from how often a number exceeds a threshold with and without a unit"
)
SIDE_ARRAYS = Check(
    "arrays sent with reports",
    measures="epsilon of arrays that are sent with reports, by a unit's move over their noise",
)
VIEW = Check(
    "all that is received",
    MOVE,
    EPSILON,
    measures="lower bound on epsilon, or FNR, of trials of everything that the observer receives",
    of_runs=True,
    assumes="the privacy losses of all that is received exceed those of the runs by one factor",
)

# Of vertical federations, and of transfers.
RELEASED = Check(
    "released noise alone", measures="of vertical federations: change of what is received while outputs are played back"
)
PERSON_MOVE = Check(
    "move over noise", measures="of vertical federations: epsilon of one person's move over the drawn noise"
)
ALL_DIRECTIONS = Check(
    "noise in all directions", measures="of vertical federations: share of a person's move that noise covers"
)
DRAWN_LAW = Check(
    "distribution of the noise",
    measures="of vertical federations: how well drawn noise fits the published distribution",
)
DRAWN = Check(
    "drawn messages", measures="of vertical federations: lower bound on epsilon from messages drawn under two data sets"
)
CHANNEL = Check(
    "label channel", measures="of vertical federations: lower bound on epsilon from draws of one released label"
)

# Of foreign systems.
CLIPPED = Check("sum of clipped rows")
FRESH_NOISE = Check("noise fresh")
SHAPE = Check("noise shape")
INDEPENDENT = Check("noise independent of the data")
LOTS = Check("records once in a lot")
RATE = Check("sampling rate")
SIZES = Check("sizes of lots")
OVERLAP = Check("records in common")
BLOCKS = Check("neighbouring records")
STEPS = Check("steps accounted")
MULTIPLIER = Check("noise multiplier accounted")
ACCOUNTED = Check("epsilon accounted")
UPDATES = Check("updates without a release")
MOVED = Check("state without noise")
FINITE = Check("finite for all rows")
REPLAYED = Check("step replayed")
EFFECTIVE = Check("effective noise multiplier")
PLAYED = Check("play-back")

CHECKS: dict[str, Check] = {check: check for check in list(globals().values()) if isinstance(check, Check)}
"""All checks of this package, by their names."""
