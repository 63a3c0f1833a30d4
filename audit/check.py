"""Implementation checks of privacy claims: what each check examines, in the field's terms and in plain words, and its
result.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # The command line lists metrics and checks without numpy.
    from .measurement import Measurement


class Subject(Enum):
    """What an implementation check examines; checks of one subject can replace each other."""

    MOVE = "how far one privacy unit changes a release"
    NOISE = "presence and size of the noise"
    FRESH = "whether noise is drawn anew"
    EPSILON = "accounting of epsilon"
    LOTTERY = "how lots and cohorts are sampled"
    MESSAGE = "everything else that the adversary receives"


MOVE, NOISE, FRESH = Subject.MOVE, Subject.NOISE, Subject.FRESH
EPSILON, LOTTERY = Subject.EPSILON, Subject.LOTTERY

_CLIPPING = ("local_step", "sample_weights", "report", "aggregate", "query")
"""Hooks of a protection that may bound a unit's row."""
_NOISING = ("local_step", "noised_sum", "local_query", "report", "channel", "aggregate", "query", "broadcast")
"""Hooks of a protection that may add noise, or use it."""
_MARK = "; in "
"""What separates the numbers of a failed check from their explanation, in its words."""


class Check(str):
    """The name of an implementation check, with its subjects. A ``Check`` also builds the check's results.

    Args:
        name: as rows, texts and tables print it.
        subjects: what it looks at, as far as reports count it.
        plain: what it compares, for readers who do not know the terms of its name; empty where the name says it.
        measures: what its number is, for ``fedassay list metrics``; empty where rows never hold it.
        of_layers: whether it looks at the noise of single layers.
        of_runs: whether it looks at many independent runs, in which clients and samples are drawn as the plan states.
        assumes: where ``detects`` of its results is a true epsilon: of which violation.
        hook: where in the code a failure comes from: hooks of a protection of which its class has one at least, or a
            part of a foreign training.
        cause, mend: its likely cause, and what mends it.
        seen: a clause with the measured number and its unit in the place of ``{}``, or a share alone in that of
            ``{%}``.
    """

    subjects: tuple[Subject, ...]
    plain: str
    measures: str
    of_layers: bool
    of_runs: bool
    assumes: str
    hook: tuple[str, ...]
    cause: str
    mend: str
    seen: str

    def __new__(
        cls,
        name: str,
        *subjects: Subject,
        plain: str = "",
        measures: str = "",
        of_layers: bool = False,
        of_runs: bool = False,
        assumes: str = "",
        hook: tuple[str, ...] = (),
        cause: str = "",
        mend: str = "",
        seen: str = "{}",
    ) -> "Check":
        check = super().__new__(cls, name)
        check.subjects, check.plain, check.measures = subjects, plain, measures
        check.of_layers, check.of_runs, check.assumes = of_layers, of_runs, assumes
        check.hook, check.cause, check.mend, check.seen = hook, cause, mend, seen
        return check

    def of(self, part: str) -> "Check":
        """Return the same check, restricted to one part of a system; the new name states the part."""
        check = Check(f"{self}, {part}")
        check.__dict__.update(self.__dict__)
        return check

    def worded(self, **words: Any) -> "Check":
        """Return the same check with other ``seen``, ``cause`` or ``mend``, as of a system with other units."""
        check = Check(self)
        check.__dict__.update(self.__dict__ | words)
        return check

    @property
    def metric(self) -> str:
        """The metric in the rows of the check's results."""
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
        hook: those of the check's hooks from which a failure may come; empty for all of them.
        cause: what causes a failure, as the runs show it; empty where they do not, and the check's likely one is named.
        mend: what mends it; empty for what the check names.
        proposal: the two inputs that a failed comparison names (``checks.decide``), on which trials can decide what it
            means; None where it names none.
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
    hook: tuple[str, ...] = ()
    cause: str = ""
    mend: str = ""
    proposal: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.passed is False and not (self.check.hook and self.check.cause and self.check.mend):
            raise ValueError(f"the check {self.name!r} failed: state its hook, cause and mend")

    @property
    def check(self) -> Check:
        """The check that gave the result; if it is not one of this package's checks, only its name is known."""
        return self.name if isinstance(self.name, Check) else CHECKS.get(self.name) or Check(self.name)

    @property
    def words(self) -> str:
        """A description of the result in one line.

        Of a failed check: what was seen, what is allowed, the hook from which it comes, the likely cause, what mends
        it, and the witness, as in ``sensitivity: one unit moves a release by 10 in the L2 norm, at most 1 allowed; in
        `report`: probably rows are not clipped; clip each row (one unit's vector of 10 clip norms)``.
        """
        if self.passed is False:
            witness = f" ({self.witness})" if self._numbers else ""
            return f"{self.name}: {self._numbers or self.witness}{self._explanation}{witness}"
        if self.measured is None or self.allowed is None:
            return f"{self.name}: {self.witness}"
        limit = "allowed" if self.relation == "<=" else "required"
        return f"{self.name} {self.measured:.4g} {self.relation} {self.allowed:.4g} {limit} ({self.witness})"

    @property
    def _numbers(self) -> str:
        """What was seen and what is allowed, with units; empty where the witness says both."""
        if self.measured is None or self.allowed is None or self.unit == IN_WITNESS:
            return ""
        # More digits where few would print two different numbers alike.
        digits = 4 if f"{self.measured:.4g}" != f"{self.allowed:.4g}" else 12
        if self.allowed == 0 and self.relation == "<=":
            return f"{_with_unit(self.measured, self.unit, digits)}, none allowed"
        share = self.unit.startswith(_SHARE)
        seen = self.check.seen.replace("{%}", f"{100 * self.measured:.{digits}g} %")
        seen = seen.replace("{}", _with_unit(self.measured, self.unit, digits))
        limit = f"{100 * self.allowed:.{digits}g} %" if share else f"{self.allowed:.{digits}g}"
        return f"{seen}, " + (f"at most {limit} allowed" if self.relation == "<=" else f"at least {limit} required")

    @property
    def _explanation(self) -> str:
        hooks = self.hook or self.check.hook
        where = " or ".join(f"`{one}`" if one.isidentifier() else f"the {one}" for one in hooks)
        return f"{_MARK}{where}: {self.cause or f'probably {self.check.cause}'}; {self.mend or self.check.mend}"


NOT_CLAIMED = "the claim is about"
"""What stands in a statement of what was not looked at, where the claim is not about it although units move it."""
IN_WITNESS = "see witness"
"""The unit of numbers that say nothing by themselves."""
_SHARE = "share of "
_BEFORE = ("epsilon", "delta", "FNR", "p-value", "cosine", "likeness", "probability")
"""Units that are printed before their number."""
_AFTER = {
    "L2 norm": "in the L2 norm",
    "the channel's own": "in the unit of the message",
    "the state's own": "in the state's own unit",
}


def _with_unit(number: float, unit: str, digits: int) -> str:
    if unit.startswith(_SHARE):
        return f"{100 * number:.{digits}g} % of {unit.removeprefix(_SHARE)}"
    noun, _, rest = _AFTER.get(unit, unit).partition(" ")
    if noun in _BEFORE:
        return f"{noun} {number:.{digits}g} {rest}".rstrip()
    one = number == 1 and noun.endswith("s")
    return " ".join(filter(None, (f"{number:.{digits}g}", noun.removesuffix("s") if one else noun, rest)))


def short_words(words: str) -> str:
    """Return a failed check in words, without explanation and witness: the measured value and the allowed one."""
    return words.partition(_MARK)[0].partition(" (")[0]


def explained_words(words: str) -> str:
    """Return the words of a failed check with its explanation, and without its witness."""
    seen, mark, explanation = words.partition(_MARK)
    return seen.partition(" (")[0] + mark + explanation.partition(" (")[0]


_GAUSSIAN = (
    "its noise is smaller by one common factor in all weights and rounds, and Gaussian in the direction of "
    "the unit's change"
)
"""The violation of which results of measured moves and noise state a true epsilon."""

SENSITIVITY = Check(
    "sensitivity",
    MOVE,
    plain="how far one privacy unit changes the result",
    measures="largest change of a release when one contribution is removed, compared with the published sensitivity",
    hook=_CLIPPING,
    cause="contributions are not clipped, or are scaled after clipping",
    mend="clip the whole contribution of each unit as the last step, as `clip(rows, clip_norm)` does, or state the "
    "larger clip norm in `law`",
    seen="one unit changes a release by {}",
)
AS_SAMPLED = Check(
    "sensitivity as sampled",
    plain="how far one privacy unit changes the result when participants are sampled",
    measures="largest change of a release by one contribution, in runs with sampled cohorts and lots",
    of_runs=True,
    assumes=_GAUSSIAN,
    hook=_CLIPPING,
    cause="the clipping of one contribution depends on others or on earlier rounds, or a sampled lot counts it twice",
    mend="clip each contribution once, independently of all others, and add it to one sum only",
    seen="one contribution changes a release by {}",
)
PARTICIPATION = Check(
    "participation as accounted",
    LOTTERY,
    measures="how often a unit is sampled, compared with the sampling rate of its claim",
    hook=("participates",),
    cause="the sampling rate is not the one that the accountant assumes, or depends on the data",
    mend="sample each unit independently at the planned rate, or account for the actual rate",
    seen="units take part in {}",
)
ONCE = Check(
    "rows used once",
    measures="change of the releases of all rounds together by one contribution, in standard deviations of their noise",
    hook=_CLIPPING,
    cause="a contribution of one round also enters releases of later rounds, for example by momentum or error feedback",
    mend="keep only noised values between rounds, or account for every release that a contribution enters",
    seen="one contribution changes the releases of all rounds together by {}",
)
UNUSED = Check(
    "rows outside the lot",
    measures="largest change of a release by samples that no lot contains",
    hook=_CLIPPING,
    cause="the release depends on samples outside the lot, for example by statistics of the whole data set",
    mend="compute the release from the sampled lot alone",
    seen="samples outside the lot change a release by {}",
)
FOLLOWED = Check(
    "rows that follow releases",
    measures="epsilon of contributions that an adversary chooses after it has seen earlier releases",
    hook=_CLIPPING,
    cause="rounds share their noise, so that contributions chosen after earlier releases add up over rounds",
    mend="draw new noise in each round",
    seen="contributions chosen after earlier releases reach {}",
)
TOGETHER = Check(
    "arrays together",
    hook=_NOISING,
    cause="one unit changes several arrays of a release, and each is accounted for alone",
    mend="clip the arrays together, or account for all of them",
    seen="all arrays of one release together reach {}",
)
EXTREME = Check(
    "extreme rows",
    plain="records with extreme values",
    measures="largest number received for a huge, infinite or NaN contribution, divided by that for an ordinary one",
    hook=_CLIPPING,
    cause="clipping fails for huge or NaN contributions, because it compares or divides infinity or NaN",
    mend="replace values that are not finite before clipping, as `torch.nan_to_num` does",
    seen="a huge, infinite or NaN contribution changes a release by {}",
)
PRESENT = Check(
    "noise present",
    NOISE,
    measures="share of a layer's coordinates that change when the noise is drawn again, in the layer with the "
    "smallest share",
    of_layers=True,
    hook=_NOISING,
    cause="some numbers are released without noise, or their noise has a fixed seed",
    mend="add noise to every number, and draw it from the hook's `rng`",
    seen="new draws of the noise change {}",
)
SCALE = Check(
    "noise scale",
    NOISE,
    plain="the size of the noise",
    measures="standard deviation of the noise, divided by that of the published noise distribution",
    of_layers=True,
    hook=_NOISING,
    cause="the noise is smaller than `law` states, for example divided by the number of clients or samples",
    mend="scale the noise to the product of clip norm and noise multiplier, or state the smaller noise in `law`",
    seen="the noise has {}",
)
BETWEEN_CLIENTS = Check(
    "noise fresh between clients",
    FRESH,
    measures="largest cosine similarity between the noise of two clients in one round",
    hook=_NOISING,
    cause="several clients use the same draw of noise",
    mend="draw noise in the shape of all updates: `normal(rng, updates.values.shape)`",
    seen="noise of two clients in one round has {}",
)
BETWEEN_ROUNDS = Check(
    "noise fresh between rounds",
    FRESH,
    measures="largest cosine similarity between the noise of one sender in two rounds",
    hook=_NOISING,
    cause="several rounds use the same draw of noise, for example from a fixed seed or a cache",
    mend="draw noise from the hook's `rng` in every round",
    seen="noise of one sender in two rounds has {}",
)
EVERY_DIRECTION = Check(
    "noise in every direction",
    measures="conditional standard deviation of the noise of one weight, given the noise of others",
    hook=_NOISING,
    cause="the noise of some weights can be computed from that of others, for example because few numbers are drawn "
    "and repeated",
    mend="draw one random number for each weight",
    seen="given the noise of other weights, that of one weight has {}",
)
GIVEN_CLIENTS = Check(
    "noise given other clients",
    plain="whether a client's noise can be computed from that of other clients",
    measures="conditional standard deviation of one client's noise, given the noise of other clients",
    hook=_NOISING,
    cause="the noise of one client can be computed from that of others, for example because it cancels in the sum",
    mend="draw each client's noise independently",
    seen="given the noise of other clients, that of one client has {}",
)
GIVEN_ROUNDS = Check(
    "noise given other rounds",
    plain="whether a round's noise can be computed from that of other rounds",
    measures="conditional standard deviation of one round's noise, given the noise of other rounds",
    hook=_NOISING,
    cause="the noise of one round can be computed from that of others, for example because it cancels in the sum",
    mend="draw each round's noise independently, or state the joint distribution of all rounds in `law`",
    seen="given the noise of other rounds, that of one round has {}",
)
DISTRIBUTION = Check(
    "noise distribution",
    plain="how the noise is distributed",
    measures="share of the noise within a given distance of its centre, at most that of the published distribution",
    hook=_NOISING,
    cause="the noise does not have the stated distribution, but is for example bounded or heavy-tailed",
    mend="draw the noise that `law` states, or state the noise that is drawn",
    seen="close to the centre are {}",
)
OTHER_DATA = Check(
    "noise under other data",
    measures="standard deviation of the noise on short, long or zero gradients, divided by that of the published "
    "distribution",
    hook=_NOISING,
    cause="the noise depends on the data, for example because it is scaled by a norm of the gradients",
    mend="scale the noise by the stated clip norm, not by the data",
    seen="on other data the noise has {}",
)
OWN_IN_RUNS = Check(
    "noise of its own in every run",
    plain="whether each run draws independent noise",
    measures="number of releases that equal a release of another run bit for bit",
    hook=_NOISING,
    cause="the noise comes from a fixed seed",
    mend="draw it from the hook's `rng`",
    seen="{} equal one of another run bit for bit",
)
COVERS_MOVES = Check(
    "noise where a unit moves the release",
    measures="largest change by one unit, divided by the standard deviation of the noise in the same direction",
    hook=_NOISING,
    cause="one unit changes numbers to which no noise is added",
    mend="add noise to every number that depends on a unit",
    seen="one unit changes a release by {}",
)
BARE = Check(
    "noise in every number of every run",
    hook=_NOISING,
    cause="some runs release numbers without noise, for example because noise is added only under a condition",
    mend="add noise in every run and round",
    seen="there is no noise in {}",
)
EVERY_NUMBER = Check(
    "noise of its own in every number and round",
    FRESH,
    plain="whether every number has noise in every round",
    measures="number of released values that one unit changes and noise does not, over all rounds and weights of "
    "the claim",
    hook=_NOISING,
    cause="some weights or rounds get no noise or reuse that of others, or a decision depends on values without noise",
    mend="draw noise for every number in every round, and base decisions on noised values alone",
    seen="one unit changes {} that noise does not change",
)
OWN_IN_REPLICAS = Check(
    "noise of its own in every replica",
    FRESH,
    plain="whether each run draws independent noise",
    measures="share of the releases without the canary that equal a release of another run",
    hook=_NOISING,
    cause="the noise is drawn once for all runs of a batch instead of in the shape of the whole tensor",
    mend="draw it with `normal(rng, updates.values.shape)`",
    seen="{%} of the releases without the canary equal one of another run",
)
EVERY_ROUND = Check(
    "noise scale in every round",
    NOISE,
    plain="the size of the noise in each single round",
    measures="standard deviation of the releases without the canary, divided by that of the published noise, in the "
    "worst round",
    of_runs=True,
    hook=_NOISING,
    cause="one round has no noise, or less than others",
    mend="add the stated noise in every round",
    seen="the noise of one round has {}",
)
ARRIVES = Check(
    "canary arrives",
    plain="whether the canary has an effect on the result",
    measures="change of the releases by the canary, divided by the change that the published noise distribution "
    "predicts",
    of_runs=True,
    hook=_CLIPPING,
    cause="a filter or a second clipping step removes the canary",
    mend="use a canary that the filter does not remove",
    seen="the canary changes the releases by {}",
)
VECTORS = Check(
    "noise of many vectors",
    measures="number of released vectors that equal a vector of another run bit for bit",
    hook=_NOISING,
    cause="the generator of the noise has a seed of few bits",
    mend="draw it from the hook's `rng`",
    seen="{} equal one of another run bit for bit",
)
NUMBERS = Check(
    "noise of many values",
    measures="estimated number of different values that reports on one input take",
    hook=_NOISING,
    cause="the noise takes few different values, for example because it comes from uniform numbers of few bits",
    mend="draw it from the hook's `rng` in double precision",
    seen="the noise takes an estimated {}",
)
LAW_EPSILON = Check(
    "epsilon of the law",
    EPSILON,
    plain="the ε that follows from the published noise distribution",
    measures="lower bound on the epsilon of the published noise distribution, at most the claim's epsilon",
    hook=("law",),
    cause="the noise of `law` is too small for the claim, or epsilon was computed for fewer rounds or another "
    "sampling rate",
    mend="compute epsilon from this noise for all rounds of the plan, or add more noise",
    seen="the published noise distribution implies {}",
)
LAW_CURVE = Check(
    "curve of the law",
    EPSILON,
    plain="the error rates that follow from the published noise distribution",
    measures="delta of the published noise distribution at an epsilon of the claim's trade-off curve",
    hook=("law",),
    cause="the stated trade-off curve holds only for more noise or fewer rounds",
    mend="state the curve that follows from this noise for all rounds",
    seen="the published noise distribution implies {}",
)
MEASURED = Check(
    "epsilon of the releases",
    MOVE,
    NOISE,
    EPSILON,
    plain="the ε that measured changes and noise of the releases imply",
    measures="epsilon of the measured sensitivity and noise, without a published distribution; at most the claim's "
    "epsilon",
    assumes=_GAUSSIAN,
    hook=_NOISING,
    cause="the noise is too small for the sensitivity of the release",
    mend="lower the clip norm, add more noise, or claim the larger epsilon",
    seen="the measured sensitivity and noise imply {}",
)
PURE = Check(
    "pure epsilon of the releases",
    MOVE,
    NOISE,
    EPSILON,
    plain="the ε that measured changes and noise of the releases imply, at δ = 0",
    measures="epsilon at delta 0 of the measured change and noise, Gaussian or not; at most the claim's epsilon",
    assumes="each privacy loss of its releases is that of these runs times one common factor",
    hook=_NOISING,
    cause="the noise is too small for the L1 sensitivity of the release",
    mend="scale Laplace noise by the L1 sensitivity, or claim the larger epsilon",
    seen="the measured L1 sensitivity and noise imply {}",
)
FITS = Check(
    "law fits the reports",
    MOVE,
    NOISE,
    FRESH,
    plain="whether reports follow the published distribution",
    of_runs=True,
    assumes="each privacy loss of its reports is that of the published distribution times one common factor",
    hook=_NOISING,
    cause="reports do not have the probabilities that `law` states",
    mend="draw reports as `law` states, or state their actual distribution in `law`",
    seen="reports differ from the published distribution by {}",
)
POSSIBLE = Check(
    "reports are possible",
    hook=_NOISING,
    cause="clients send reports that have probability zero under `law`",
    mend="state the actual distribution of reports in `law`",
    seen="{} have probability zero under the published distribution",
)
PLACE = Check(
    "places of shuffled reports",
    FRESH,
    hook=("channel",),
    cause="the position of a report depends on its sender",
    mend="draw a new random permutation of the reports in each run",
    seen="the positions of reports reveal their senders with {}",
)
LOCAL = Check(
    "reports before the shuffler",
    MOVE,
    NOISE,
    hook=("report",),
    cause="a report before the shuffler exceeds its local epsilon",
    mend="randomise it with the stated local epsilon",
    seen="one report before the shuffler has {}",
)
AMPLIFIED = Check(
    "epsilon of the shuffled law",
    EPSILON,
    plain="the ε of shuffled reports that follows from the published distribution of one report",
    hook=("law",),
    cause="the conditions of the amplification bound are not met, or it assumes more clients than report",
    mend="compute the bound for the number of clients that report",
    seen="the shuffled distribution of reports implies {}",
)
ORDER = Check(
    "order of shuffled reports",
    measures="how far the positions of shuffled reports depend on their senders",
    hook=("channel",),
    cause="the channel does not permute reports uniformly",
    mend="draw a new random permutation of the reports in each run",
    seen="positions of reports depend on their senders in {}",
)
EVENTS = Check(
    "reports on extreme rows",
    MOVE,
    NOISE,
    EPSILON,
    measures="lower bound on epsilon from how often reports on the two most different inputs fall into an event",
    assumes="each privacy loss of its reports is that of these runs times one common factor",
    hook=("local_query", "report"),
    cause="some reports on extreme inputs are more probable than the local epsilon allows",
    mend="clip the input to the mechanism's range before it is randomised",
    seen="reports on extreme inputs show {}",
)
MASKS = Check(
    "masked words",
    plain="masked numbers",
    measures="how far the masked integers of a secure sum are from uniform and independent",
    hook=("report", "channel"),
    cause="masks are not uniform over all integers of the stated bits, or are used twice",
    mend="draw a new uniform mask for each pair of clients, each round and each integer",
    seen="{} lie in one part of their range",
)
MESSAGE = Check(
    "whole message",
    Subject.MESSAGE,
    measures="parts of the message to the adversary that one unit changes and noise does not",
    hook=("report", "channel", "aggregate", "broadcast"),
    cause="the message has a part without noise that depends on the data",
    mend="add noise to this part, or send nothing in it that depends on data",
    seen="one unit changes a part of the message by {}",
)
PUBLIC_STATE = Check(
    "public state",
    Subject.MESSAGE,
    plain="what the server keeps between rounds",
    measures="largest change of a number in the public state when one contribution changes",
    hook=("initial_state", "open_round", "query", "close_round"),
    cause="the public state depends on values without noise",
    mend="compute the state from noised values alone",
    seen="one unit changes the public state by {}",
)
ODDS = Check(
    "numbers that a unit moves",
    measures="lower bound on epsilon from how often a number exceeds a threshold in runs with and without a unit",
    hook=("report", "channel", "aggregate", "query"),
    cause="a number that depends on the data has too little noise",
    mend="add noise to this number and account for it",
    seen="how often one number exceeds a threshold in both arms shows {}",
)
SIDE_ARRAYS = Check(
    "arrays sent with reports",
    measures="epsilon of arrays that are sent with reports, from their measured sensitivity and noise",
    hook=("report", "channel"),
    cause="an array sent with the report has too little noise",
    mend="clip it, add noise, and account for it",
    seen="arrays sent with the reports show {}",
)
VIEW = Check(
    "all that is received",
    MOVE,
    EPSILON,
    measures="lower bound on epsilon, or false-negative rate, in runs that compare all that the adversary receives",
    of_runs=True,
    assumes="each privacy loss of all that is received is that of these runs times one common factor",
    hook=_NOISING,
    cause="the defense releases more about one unit than its claim allows",
    mend="see which event distinguishes the runs, and whether another failed check explains it",
    seen="runs with and without the unit show {}",
)

PREPARATION = Check(
    "preparation",
    plain="what the preparation of the data publishes",
    measures="lower bound on epsilon of what the preparation of neighbouring data sets publishes",
    hook=("preparation of the data",),
    cause="a statistic of private records is published without noise, or with less noise than the claim requires",
    mend="compute it from public test records, or add noise and include its epsilon in the claim",
    seen="what the preparation publishes reveals {}",
)
JOINT_RELEASE = Check(
    "preparation and training",
    plain="everything published or received on neighbouring data sets, from the preparation to the last model",
    measures="lower bound on epsilon of all that the preparation of the data and the training on them release",
    of_runs=True,
    hook=("preparation of the data",),
    cause="one record changes the prepared features of other records, the model, the plan, or what is published at "
    "the end",
    mend="prepare each record with public constants or noised statistics only, and include the epsilon of these in "
    "the claim",
    seen="everything published or received reveals {}",
)

# Of vertical federations, and of transfers.
RELEASED = Check(
    "released noise alone",
    measures="vertical federations: change of what is received while all noised outputs are held fixed",
    hook=("columns", "targets", "embeddings", "residuals", "gradients", "bottom_sum", "evaluated"),
    cause="a message depends on the data otherwise than through the noised outputs",
    mend="compute all messages from noised outputs alone",
    seen="the data change {} although all noised outputs are held fixed",
)
PERSON_MOVE = Check(
    "move over noise",
    MOVE,
    NOISE,
    EPSILON,
    measures="vertical federations: epsilon from how far one person's data change the messages, and from the drawn "
    "noise",
    hook=("targets", "embeddings", "residuals", "gradients", "bottom_sum"),
    cause="a person's values are not clipped, or the noise is too small for the number of steps",
    mend="clip each person's values, and compute the noise for all steps",
    seen="one person's change of the messages, divided by the noise, implies {}",
)
ALL_DIRECTIONS = Check(
    "noise in all directions",
    measures="vertical federations: share of the noise that remains in the direction in which it hides one person's "
    "change least",
    hook=("embeddings", "residuals", "gradients", "bottom_sum"),
    cause="in some directions one person's data change the messages and there is no noise",
    mend="draw independent noise for each number that is sent",
    seen="in the direction with the least noise there is {}",
)
DRAWN_LAW = Check(
    "distribution of the noise",
    measures="vertical federations: how well the drawn noise fits the published distribution",
    hook=("embeddings", "residuals", "gradients", "bottom_sum"),
    cause="the noise has another distribution than the published one",
    mend="draw the noise that the law states",
    seen="the drawn noise fits the published one with {}",
)
DRAWN = Check(
    "drawn messages",
    measures="vertical federations: lower bound on epsilon from messages drawn on two neighbouring data sets",
    hook=("targets", "embeddings", "residuals", "gradients"),
    cause="drawn messages depend on the data more than the claim allows",
    mend="draw messages with the stated epsilon",
    seen="drawn messages show {}",
)
CHANNEL = Check(
    "label channel",
    MOVE,
    NOISE,
    EPSILON,
    measures="vertical federations: lower bound on epsilon from repeated draws of one released label",
    hook=("targets",),
    cause="the true label is released more often than the claim allows",
    mend="release each true label with the probability that the stated epsilon allows for all draws",
    seen="draws of one label show {}",
)

ANSWERED = Check(
    "noise of all answers",
    NOISE,
    plain="whether the answer to every query has noise",
    measures="transfers: answers that one teacher changes and noise does not, or labels that are released too rarely",
    hook=("aggregate_votes", "teacher_answers"),
    cause="some queries, or votes on which all teachers agree, get no noise",
    mend="add noise to the count of every label in every query, whatever the votes are",
    seen="there is no noise in {}",
)

# Of foreign systems.
CLIPPED = Check(
    "sum of clipped rows",
    MOVE,
    hook=("clipped sum",),
    cause="gradients enter the sum with norms above the clip norm",
    mend="clip the whole gradient of each record before it is added",
    seen="one record adds {}",
)
FRESH_NOISE = Check(
    "noise fresh",
    FRESH,
    hook=("noised step",),
    cause="several steps use the same draw of noise, for example because the generator is seeded again",
    mend="use one generator for the whole training",
)
SHAPE = Check(
    "noise shape",
    hook=("noised step",),
    cause="the noise is not drawn from the normal distribution",
    mend="draw normal noise in floating point, and neither clamp nor round it",
    seen="the distribution of the noise differs from the normal one by {}",
)
INDEPENDENT = Check(
    "noise along the sum",
    hook=("noised step",),
    cause="the noise depends on the sum to which it is added, as where a part of this sum is taken away again",
    mend="draw the noise without looking at the sum, and add it to the sum unchanged",
    seen="in the direction of the sum to which it is added, the noise has {}",
)
LOTS = Check(
    "records once in a lot",
    LOTTERY,
    hook=("data loader",),
    cause="one record enters a lot twice, and each copy is clipped separately",
    mend="add up all gradients of a record before they are clipped",
    seen="one record enters a lot with {}",
)
RATE = Check(
    "sampling rate",
    LOTTERY,
    hook=("data loader",),
    cause="records are sampled more often than the accountant assumes",
    mend="sample at the accounted rate, or account for the actual rate",
    seen="one record is sampled with {}",
)
SIZES = Check(
    "sizes of lots",
    LOTTERY,
    hook=("data loader",),
    cause="lots have a fixed size, and are not drawn by Poisson sampling",
    mend="use Poisson sampling, as Opacus' `DPDataLoader` does, or account for the sampling that is used",
    seen="the sizes of lots differ by {}",
)
OVERLAP = Check(
    "records in common",
    hook=("data loader",),
    cause="lots come from passes over shuffled records, and not from Poisson sampling",
    mend="use Poisson sampling, or account for the sampling that is used",
    seen="pairs of lots have {} in common",
)
BLOCKS = Check(
    "neighbouring records",
    hook=("data loader",),
    cause="two records are drawn by one coin, as those of one group or file",
    mend="draw each record by a coin of its own",
    seen="two records are sampled together in {}",
)
STEPS = Check(
    "steps accounted",
    EPSILON,
    hook=("accountant",),
    cause="the accountant does not count some noisy steps",
    mend="count every step, including those of skipped or accumulated batches",
    seen="the accountant counts {}",
)
MULTIPLIER = Check(
    "noise multiplier accounted",
    EPSILON,
    hook=("accountant",),
    cause="the accountant assumes more noise than the optimizer adds",
    mend="give the accountant the optimizer's noise multiplier",
    seen="the accountant assumes a noise multiplier of {}",
)
ACCOUNTED = Check(
    "epsilon accounted",
    EPSILON,
    hook=("accountant",),
    cause="epsilon was read before the last step, or the noise multiplier is smaller than this epsilon needs",
    mend="read epsilon after the last step, at the claim's delta, and leave the calibrated noise multiplier as it is",
    seen="the accountant states {}",
)
UPDATES = Check(
    "updates without a release",
    hook=("optimizer",),
    cause="the optimizer updates the model without a noised release",
    mend="skip the update in steps that release nothing",
    seen="{} were made without a noised release",
)
MOVED = Check(
    "state without noise",
    hook=("model",),
    cause="the data change a parameter or buffer outside of the noised sums",
    mend="let noised sums alone change what is trained, kept or chosen",
)
NEIGHBOUR = Check(
    "sums on neighbouring data",
    MOVE,
    plain="how far replacing one record changes the clipped sums of a training",
    hook=("clipped sum",),
    cause="a record enters more than once or without clipping, or changes the gradients of others",
    mend="compute each gradient from one record alone, and clip each record once",
    seen="replacing one record changes a clipped sum by {}",
)
SIZE = Check(
    "number of records",
    plain="what depends on the number of records, which is not public under add/remove",
    hook=("data loader",),
    cause="divisors, sampling rates or the number of steps are computed from the number of records",
    mend="set them as constants, or claim zero-out adjacency, under which the number of records is public",
)
FINITE = Check(
    "finite for all rows",
    plain="whether NaN or infinite values of a record enter a release",
    measures="no number; the reason names the gradients with NaN or infinite entries that enter a release",
)
REPLAYED = Check("step replayed")
EFFECTIVE = Check(
    "effective noise multiplier",
    MOVE,
    NOISE,
    hook=("noised step",),
    cause="one record or client changes the release by more than the clip norm, or the noise is smaller than stated, "
    "for example divided by their number; or norms are computed in a type of too few digits, such as float16",
    mend="clip all numbers of one together, compute norms in float32, and scale the noise and the clip norm by the "
    "same factor",
    seen="the release has a noise multiplier of {}",
)
PLAYED = Check("play-back")

CHECKS: dict[str, Check] = {check: check for check in list(globals().values()) if isinstance(check, Check)}
"""All checks of this package, by their names."""
