"""Implementation checks of claims: what each looks at, in the field's terms and in plain words, and what it found."""

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # The command line lists metrics and checks without numpy.
    from .measurement import Measurement


class Subject(Enum):
    """What an implementation check examines; checks of one subject can replace each other."""

    MOVE = "how far one unit moves what is released"
    NOISE = "presence and size of the noise"
    FRESH = "noise that is drawn anew"
    EPSILON = "accounting of epsilon"
    LOTTERY = "lots and cohorts, as they are drawn"
    MESSAGE = "everything else that is received"


MOVE, NOISE, FRESH = Subject.MOVE, Subject.NOISE, Subject.FRESH
EPSILON, LOTTERY = Subject.EPSILON, Subject.LOTTERY

_CLIPPING = ("local_step", "sample_weights", "report", "aggregate", "query")
"""Hooks of a protection that may bound a unit's row."""
_NOISING = ("local_step", "noised_sum", "local_query", "report", "channel", "aggregate", "query", "broadcast")
"""Hooks of a protection that may add noise, or use it."""
_MARK = "; in "
"""What separates the numbers of a failed check from their explanation, in its words."""


class Check(str):
    """The name of an implementation check, with its subjects. It makes the check's results.

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
        hook: those of the check's hooks from which a failure may come; empty for all of them.
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
    proposal: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.passed is False and not (self.check.hook and self.check.cause and self.check.mend):
            raise ValueError(f"the check {self.name!r} failed: state its hook, cause and mend")

    @property
    def check(self) -> Check:
        """The check that gave the result; if it is not one of this package's checks, only its name is known."""
        return CHECKS.get(self.name) or (self.name if isinstance(self.name, Check) else Check(self.name))

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
        return f"{_MARK}{where}: probably {self.check.cause}; {self.check.mend}"


NOT_CLAIMED = "the claim is about"
"""What stands in a statement of what was not looked at, where the claim is not about it although units move it."""
IN_WITNESS = "see witness"
"""The unit of numbers that say nothing by themselves."""
_SHARE = "share of "
_BEFORE = ("epsilon", "delta", "FNR", "p-value", "cosine", "likeness", "probability")
"""Units that are printed before their number."""
_AFTER = {
    "L2 norm": "in the L2 norm",
    "the channel's own": "in the channel's own unit",
    "the state's own": "in the state's own unit",
}


def _with_unit(number: float, unit: str, digits: int) -> str:
    if unit.startswith(_SHARE):
        return f"{100 * number:.{digits}g} % of {unit.removeprefix(_SHARE)}"
    if unit in _BEFORE:
        return f"{unit} {number:.{digits}g}"
    noun, _, rest = _AFTER.get(unit, unit).partition(" ")
    one = number == 1 and noun.endswith("s")
    return " ".join(filter(None, (f"{number:.{digits}g}", noun.removesuffix("s") if one else noun, rest)))


def short_words(words: str) -> str:
    """Return a failed check in words, without explanation and witness: the measured value and the allowed one."""
    return words.partition(_MARK)[0].partition(" (")[0]


def explained_words(words: str) -> str:
    """Return the words of a failed check with its explanation, and without its witness."""
    seen, mark, explanation = words.partition(_MARK)
    return seen.partition(" (")[0] + mark + explanation.partition(" (")[0]


_GAUSSIAN = "its noise is smaller by one factor in all weights and rounds, and Gaussian where the unit moves"
"""The violation of which results of measured moves and noise state a true epsilon."""

SENSITIVITY = Check(
    "sensitivity",
    MOVE,
    plain="how far one unit moves the result",
    measures="largest change of a release when one row is removed; compared with the published sensitivity",
    hook=_CLIPPING,
    cause="rows are not clipped, or are scaled after the clip",
    mend="clip each unit's whole row last, as `clip(rows, clip_norm)` does, or state the larger clip norm in `law`",
    seen="one unit moves a release by {}",
)
AS_SAMPLED = Check(
    "sensitivity as sampled",
    plain="how far one unit moves the result, where participants are drawn at random",
    measures="largest change of a release by one row, with cohorts and lots as sampled",
    of_runs=True,
    assumes=_GAUSSIAN,
    hook=_CLIPPING,
    cause="a row is clipped by what other rows or earlier rounds hold, or is counted twice where lots are drawn",
    mend="clip each row on its own, once, and add it to one sum alone",
)
PARTICIPATION = Check(
    "participation as accounted",
    LOTTERY,
    measures="how often a unit is drawn, against the sampling rate of its claim",
    hook=("participates",),
    cause="units are drawn at another rate than the accountant assumes, or by their data",
    mend="draw each unit by its own coin at the rate of the plan, or account for the rate that is drawn",
    seen="units take part in {}",
)
ONCE = Check(
    "rows used once",
    measures="how far one row moves the releases of all rounds together, divided by their noise",
    hook=_CLIPPING,
    cause="a row of one round also reaches releases of later rounds, as by momentum or error feedback",
    mend="keep only noised values between rounds, or account for every release of a row",
    seen="one row moves all rounds together by {}",
)
UNUSED = Check(
    "rows outside the lot",
    measures="largest change of a release by rows that were not drawn into any lot",
    hook=_CLIPPING,
    cause="the release uses samples that were not drawn, as by statistics of the whole data set",
    mend="compute from the drawn lot alone",
    seen="rows that were not drawn move a release by {}",
)
FOLLOWED = Check(
    "rows that follow releases",
    measures="epsilon of rows that are chosen by earlier releases",
    hook=_CLIPPING,
    cause="rows that are chosen by earlier releases add up over rounds, because rounds share their noise",
    mend="draw new noise in each round",
    seen="rows that are chosen by earlier releases reach {}",
)
TOGETHER = Check(
    "arrays together",
    hook=_NOISING,
    cause="several arrays of one release move with a unit, and each is accounted alone",
    mend="clip the arrays together, or account for all of them",
    seen="the arrays of one release together reach {}",
)
EXTREME = Check(
    "extreme rows",
    plain="records with extreme values",
    measures="largest number received for a huge, infinite or undefined row over that of an ordinary row",
    hook=_CLIPPING,
    cause="a huge or undefined row passes the clip, since infinity or NaN is compared or divided",
    mend="replace values that are not finite, as `torch.nan_to_num` does, before the clip",
)
PRESENT = Check(
    "noise present",
    NOISE,
    measures="share of a layer's coordinates that other noise draws change; the smallest over layers",
    of_layers=True,
    hook=_NOISING,
    cause="some numbers are released without noise, or their noise comes from a seed of its own",
    mend="add noise to every number, drawn from the hook's `rng`",
    seen="other draws change {}",
)
SCALE = Check(
    "noise scale",
    NOISE,
    plain="the size of the noise",
    measures="standard deviation of the noise, divided by that of the published noise law",
    of_layers=True,
    hook=_NOISING,
    cause="the noise is smaller than `law` states, as when it is divided by a number of clients or samples",
    mend="multiply the noise by clip norm and noise multiplier, or state the smaller noise in `law`",
    seen="the noise has {}",
)
BETWEEN_CLIENTS = Check(
    "noise fresh between clients",
    FRESH,
    measures="largest cosine between the noise of two clients in one round",
    hook=_NOISING,
    cause="one draw of noise serves several clients",
    mend="draw noise in the shape of all rows: `normal(rng, updates.values.shape)`",
    seen="noise of two clients in one round has {}",
)
BETWEEN_ROUNDS = Check(
    "noise fresh between rounds",
    FRESH,
    measures="largest cosine between the noise of one sender in two rounds",
    hook=_NOISING,
    cause="one draw of noise serves several rounds, as from a fixed seed or a cache",
    mend="draw noise from the hook's `rng` in every round",
    seen="noise of one sender in two rounds has {}",
)
EVERY_DIRECTION = Check(
    "noise in every direction",
    measures="standard deviation of a weight's noise given that of other weights",
    hook=_NOISING,
    cause="the noise of some weights follows from that of others, as when few numbers are drawn and repeated",
    mend="draw one number for each weight",
    seen="the noise of one weight, given others, has {}",
)
GIVEN_CLIENTS = Check(
    "noise given other clients",
    plain="whether a client's noise follows from that of other clients",
    measures="standard deviation of a client's noise given that of other clients",
    hook=_NOISING,
    cause="the noise of one client follows from that of others, as when it is made to cancel",
    mend="draw each client's noise on its own",
    seen="the noise of one client, given others, has {}",
)
GIVEN_ROUNDS = Check(
    "noise given other rounds",
    plain="whether a round's noise follows from that of other rounds",
    measures="standard deviation of a round's noise given that of other rounds",
    hook=_NOISING,
    cause="the noise of one round follows from that of others, as when it is made to cancel",
    mend="draw each round's noise on its own, or state a law of all rounds",
    seen="the noise of one round, given others, has {}",
)
DISTRIBUTION = Check(
    "noise distribution",
    plain="how the noise is distributed",
    measures="share of the noise within some standard deviations of its centre; at most the law's",
    hook=_NOISING,
    cause="the noise has another shape than the law's, such as bounded or heavy-tailed noise of the same size",
    mend="draw the noise that `law` states, or state the law that is drawn",
    seen="near the centre lie {}",
)
OTHER_DATA = Check(
    "noise under other data",
    measures="standard deviation of the noise divided by the law's, on short, long or no gradients",
    hook=_NOISING,
    cause="the noise shrinks with the data, as when it is scaled by a norm of the gradients",
    mend="scale the noise by the stated clip norm, not by the data",
    seen="on other data the noise has {}",
)
OWN_IN_RUNS = Check(
    "noise of its own in every run",
    plain="whether each run has noise of its own",
    measures="releases that are bit for bit equal to one of another run",
    hook=_NOISING,
    cause="the noise comes from a fixed seed",
    mend="draw it from the hook's `rng`",
    seen="{} are bit for bit equal to one of another run",
)
COVERS_MOVES = Check(
    "noise where a unit moves the release",
    measures="largest change by one unit over the noise in the same direction",
    hook=_NOISING,
    cause="a unit moves numbers to which no noise is added",
    mend="add noise to every number that a unit moves",
    seen="one unit moves a release by {}",
)
BARE = Check(
    "noise in every number of every run",
    hook=_NOISING,
    cause="some runs release numbers without noise, as behind a condition",
    mend="add noise in every run and round",
    seen="without noise are {}",
)
EVERY_NUMBER = Check(
    "noise of its own in every number and round",
    FRESH,
    plain="whether every number has noise in every round",
    measures="numbers in all rounds and weights of the claim that one unit changes and noise does not",
    hook=_NOISING,
    cause="some weights or rounds get no noise, or the noise of others, or exact values decide something",
    mend="draw noise for every number in every round, and decide by what was released with noise",
    seen="one unit changes {} that noise does not change",
)
OWN_IN_REPLICAS = Check(
    "noise of its own in every replica",
    FRESH,
    plain="whether each run has noise of its own",
    measures="share of releases without the canary that are equal to one of another replica",
    hook=_NOISING,
    cause="the noise is drawn once for all replicas instead of in the shape of the whole tensor",
    mend="draw it with `normal(rng, updates.values.shape)`",
    seen="{%} of the releases without the canary repeat another run's",
)
EVERY_ROUND = Check(
    "noise scale in every round",
    NOISE,
    plain="the size of the noise in each single round",
    measures="standard deviation of releases without the canary, divided by that of the noise law, in the worst round",
    of_runs=True,
    hook=_NOISING,
    cause="the noise of one round is missing or smaller than in others",
    mend="add the stated noise in every round",
    seen="the noise of one round has {}",
)
ARRIVES = Check(
    "canary arrives",
    plain="whether the planted unit reaches the result",
    measures="shift of the releases by the canary, divided by the shift that the noise law predicts",
    of_runs=True,
    hook=_CLIPPING,
    cause="a filter or another clip drops the canary",
    mend="plant one that passes it",
    seen="the canary moves the releases by {}",
)
VECTORS = Check(
    "noise of many vectors",
    measures="released vectors that are bit for bit equal to one of another run",
    hook=_NOISING,
    cause="the noise comes from a generator that is seeded with few bits",
    mend="draw it from the hook's `rng`",
    seen="{} are bit for bit equal to one of another run",
)
NUMBERS = Check(
    "noise of many values",
    measures="number of different values that reports on one input seem to take",
    hook=_NOISING,
    cause="the noise takes few values, as from uniform numbers of few bits",
    mend="draw it from the hook's `rng` in double precision",
    seen="the noise seems to take only {}",
)
LAW_EPSILON = Check(
    "epsilon of the law",
    EPSILON,
    plain="the ε that follows from the published noise",
    measures="epsilon that the published noise law implies, bounded from below; at most the claim's",
    hook=("law",),
    cause="the noise of `law` is too small for the claim, or is accounted for fewer rounds or another rate",
    mend="compute epsilon from this law for all rounds of the plan, or raise the noise",
    seen="the published noise implies {}",
)
LAW_CURVE = Check(
    "curve of the law",
    EPSILON,
    plain="the error rates that follow from the published noise",
    measures="delta that the published noise law implies at an epsilon of the claim's trade-off curve",
    hook=("law",),
    cause="the stated trade-off curve is that of more noise or fewer rounds",
    mend="state the curve that follows from this law for all rounds",
    seen="the published noise implies {}",
)
MEASURED = Check(
    "epsilon of the releases",
    MOVE,
    NOISE,
    EPSILON,
    plain="the ε of the published values",
    measures="epsilon of measured sensitivity and noise, without a law; at most the claim's",
    assumes=_GAUSSIAN,
    hook=_NOISING,
    cause="the noise is too small for how far a unit moves the release",
    mend="clip lower, raise the noise, or claim the larger epsilon",
    seen="measured move and noise imply {}",
)
PURE = Check(
    "pure epsilon of the releases",
    MOVE,
    NOISE,
    EPSILON,
    plain="the ε of the published values, at δ = 0",
    measures="epsilon of shift and noise of any shape, at delta 0; at most the claim's",
    assumes="the privacy losses of its releases exceed those of the runs by one factor",
    hook=_NOISING,
    cause="the noise is too small for how far a unit moves the release in the L1 norm",
    mend="scale Laplace noise by the L1 sensitivity, or claim the larger epsilon",
    seen="shift and noise imply {}",
)
FITS = Check(
    "law fits the reports",
    MOVE,
    NOISE,
    FRESH,
    plain="whether reports have the published noise",
    of_runs=True,
    assumes="the privacy losses of its reports exceed the law's by one factor",
    hook=_NOISING,
    cause="reports are drawn by other probabilities than `law` states",
    mend="draw what `law` states, or state the law that is drawn",
    seen="reports differ from the law by {}",
)
POSSIBLE = Check(
    "reports are possible",
    hook=_NOISING,
    cause="clients send reports to which `law` gives no probability",
    mend="state the law that is drawn",
    seen="{} are impossible under the law",
)
PLACE = Check(
    "places of shuffled reports",
    FRESH,
    hook=("channel",),
    cause="reports keep their senders' places",
    mend="permute the reports of each run by a new draw",
    seen="the reports' places show their senders with {}",
)
LOCAL = Check(
    "reports before the shuffler",
    MOVE,
    NOISE,
    hook=("report",),
    cause="a report before the shuffler shows more than its local budget",
    mend="draw it with the stated local budget",
    seen="one report alone shows {}",
)
AMPLIFIED = Check(
    "epsilon of the shuffled law",
    EPSILON,
    plain="the ε of shuffled reports that follows from the published noise",
    hook=("law",),
    cause="the amplification bound is applied outside of its conditions, or for more clients than report",
    mend="compute it for the clients that report",
    seen="the shuffled law implies {}",
)
ORDER = Check(
    "order of shuffled reports",
    measures="how far the places of shuffled reports depend on their senders",
    hook=("channel",),
    cause="the channel does not permute reports uniformly",
    mend="permute the reports of each run by a new draw",
    seen="places of reports follow their senders in {}",
)
EVENTS = Check(
    "reports on extreme rows",
    MOVE,
    NOISE,
    EPSILON,
    measures="lower bound on epsilon from events of reports on rows that differ most",
    assumes="the privacy losses of its reports exceed those of the runs by one factor",
    hook=("local_query", "report"),
    cause="some reports on extreme rows are likelier than the local budget allows",
    mend="clip the row to the mechanism's range before it is randomised",
    seen="reports on extreme rows show {}",
)
MASKS = Check(
    "masked words",
    plain="masked numbers",
    measures="how far the masked words of a secure sum are from uniform and independent",
    hook=("report", "channel"),
    cause="masks are not uniform over all words, or are used twice",
    mend="draw a new uniform mask for each pair of clients, round and word",
    seen="{} lie in one part of their range",
)
MESSAGE = Check(
    "whole message",
    Subject.MESSAGE,
    measures="parts of the message to the observer that change with one unit and not with noise",
    hook=("report", "channel", "aggregate", "broadcast"),
    cause="something other than the noised values depends on the data",
    mend="add noise to it, or send nothing that depends on data",
    seen="one unit moves a part of the message by {}",
)
PUBLIC_STATE = Check(
    "public state",
    Subject.MESSAGE,
    plain="what the server keeps between rounds",
    measures="largest change of a number in the public state when one row changes",
    hook=("initial_state", "open_round", "query", "close_round"),
    cause="the public state holds values without noise",
    mend="compute the state from noised values alone",
    seen="one unit moves the public state by {}",
)
ODDS = Check(
    "numbers that a unit moves",
    measures="epsilon from how often a number exceeds a threshold with and without a unit",
    hook=("report", "channel", "aggregate", "query"),
    cause="a number without enough noise depends on the data",
    mend="add noise to it and account for it",
    seen="how often a number exceeds a threshold shows {}",
)
SIDE_ARRAYS = Check(
    "arrays sent with reports",
    measures="epsilon of arrays that are sent with reports, from how far a unit moves them and from their noise",
    hook=("report", "channel"),
    cause="an array sent with the report has too little noise",
    mend="clip it, add noise, and account for it",
    seen="arrays sent with the reports show {}",
)
VIEW = Check(
    "all that is received",
    MOVE,
    EPSILON,
    measures="lower bound on epsilon, or FNR, of trials of everything that the observer receives",
    of_runs=True,
    assumes="the privacy losses of all that is received exceed those of the runs by one factor",
    hook=_NOISING,
    cause="the defense releases more about one unit than its claim allows",
    mend="read which event distinguishes the runs, and which failed check explains it",
    seen="runs with and without the unit show {}",
)

PREPARATION = Check(
    "preparation",
    plain="what the preparation of the data publishes",
    measures="lower bound on epsilon of what a preparation of the data publishes on neighbouring records",
    hook=("preparation of the data",),
    cause="a statistic of private records leaves the clients without noise, or with less than the claim pays for",
    mend="compute it from the public test rows, or add noise and count its epsilon in the claim",
    seen="what the preparation publishes reveals {}",
)
JOINT_RELEASE = Check(
    "preparation and training",
    plain="what is published and received on neighbouring records, from preparation to the last model",
    measures="lower bound on epsilon of all that a preparation of the data publishes and a training on it releases",
    of_runs=True,
    hook=("preparation of the data",),
    cause="one record changes the prepared rows of others, the model, the plan, or what is published at the end",
    mend="prepare each record by public constants or noised statistics alone, and count all of it in the claim",
    seen="all that is published and received reveals {}",
)

# Of vertical federations, and of transfers.
RELEASED = Check(
    "released noise alone",
    measures="of vertical federations: change of what is received while outputs are played back",
    hook=("columns", "targets", "embeddings", "residuals", "gradients", "bottom_sum", "evaluated"),
    cause="something is sent that does not follow from the noised outputs",
    mend="compute all messages from noised outputs alone",
    seen="data change {} otherwise than through the noised outputs",
)
PERSON_MOVE = Check(
    "move over noise",
    MOVE,
    NOISE,
    EPSILON,
    measures="of vertical federations: epsilon from how far one person moves messages and from the drawn noise",
    hook=("targets", "embeddings", "residuals", "gradients", "bottom_sum"),
    cause="a person's values are not clipped, or the noise is too small for all steps",
    mend="clip each person's values, and compute the noise for all steps",
    seen="one person's move over the noise implies {}",
)
ALL_DIRECTIONS = Check(
    "noise in all directions",
    measures="of vertical federations: share of one person's change of messages in directions that have noise",
    hook=("embeddings", "residuals", "gradients", "bottom_sum"),
    cause="the noise misses some directions in which a person moves messages",
    mend="draw one number of noise for each number that is sent",
    seen="the noise covers {}",
)
DRAWN_LAW = Check(
    "distribution of the noise",
    measures="of vertical federations: how well drawn noise fits the published distribution",
    hook=("embeddings", "residuals", "gradients", "bottom_sum"),
    cause="the noise has another distribution than the published one",
    mend="draw the noise that the law states",
    seen="the drawn noise fits the published one with {}",
)
DRAWN = Check(
    "drawn messages",
    measures="of vertical federations: lower bound on epsilon from messages drawn under two data sets",
    hook=("targets", "embeddings", "residuals", "gradients"),
    cause="drawn messages depend on the data more than the claim allows",
    mend="draw them with the stated budget",
    seen="drawn messages show {}",
)
CHANNEL = Check(
    "label channel",
    MOVE,
    NOISE,
    EPSILON,
    measures="of vertical federations: lower bound on epsilon from draws of one released label",
    hook=("targets",),
    cause="labels are kept more often than the claim allows",
    mend="keep each label with the probability of the stated epsilon, over all draws",
    seen="draws of one label show {}",
)

ANSWERED = Check(
    "noise of all answers",
    NOISE,
    plain="whether the answer to every query has noise",
    measures="of transfers: answers that one teacher changes and noise does not, or labels that are too rare",
    hook=("aggregate_votes", "teacher_answers"),
    cause="some queries, or votes on which teachers agree, get no noise",
    mend="draw noise for every label of every query, whatever the votes are",
    seen="without noise are {}",
)

# Of foreign systems.
CLIPPED = Check(
    "sum of clipped rows",
    MOVE,
    hook=("clipped sum",),
    cause="rows enter the sum with norms above the clip norm",
    mend="clip each record's whole gradient before it is added",
    seen="one record adds {}",
)
FRESH_NOISE = Check(
    "noise fresh",
    FRESH,
    hook=("noised step",),
    cause="one draw of noise serves several steps, as from a generator that is seeded anew",
    mend="keep one generator for the whole training",
    seen="noise of two steps has {}",
)
SHAPE = Check(
    "noise shape",
    hook=("noised step",),
    cause="the noise is not drawn from the normal distribution",
    mend="draw normal noise in floating point",
)
INDEPENDENT = Check(
    "noise independent of the data",
    hook=("noised step",),
    cause="the noise depends on the sum to which it is added",
    mend="draw it before and without the data",
)
LOTS = Check(
    "records once in a lot",
    LOTTERY,
    hook=("data loader",),
    cause="one record enters a lot twice, each time clipped alone",
    mend="clip all rows of a record together",
    seen="one record enters a lot with {}",
)
RATE = Check(
    "sampling rate",
    LOTTERY,
    hook=("data loader",),
    cause="records are drawn more often than the accountant assumes",
    mend="draw at the accounted rate, or account for the rate that is drawn",
    seen="one record is drawn with {}",
)
SIZES = Check(
    "sizes of lots",
    LOTTERY,
    hook=("data loader",),
    cause="lots have a fixed size, or sizes that Poisson sampling does not give",
    mend="use Poisson sampling, as Opacus' `DPDataLoader` does, or account for the sampling that is used",
    seen="sizes of lots differ by {}",
)
OVERLAP = Check(
    "records in common",
    hook=("data loader",),
    cause="lots are drawn by a shuffled pass and not by independent coins",
    mend="use Poisson sampling, or account for the sampling that is used",
    seen="two lots share {}",
)
BLOCKS = Check(
    "neighbouring records",
    hook=("data loader",),
    cause="neighbouring records are drawn together",
    mend="draw each record by a coin of its own",
    seen="neighbours are drawn together in {}",
)
STEPS = Check(
    "steps accounted",
    EPSILON,
    hook=("accountant",),
    cause="noisy steps are made that the accountant does not count",
    mend="count every step, also those of skipped or accumulated batches",
    seen="the accountant counts {}",
)
MULTIPLIER = Check(
    "noise multiplier accounted",
    EPSILON,
    hook=("accountant",),
    cause="the accountant assumes more noise than is added",
    mend="give the accountant the multiplier of the optimizer",
    seen="the accountant assumes {}",
)
ACCOUNTED = Check(
    "epsilon accounted",
    EPSILON,
    hook=("accountant",),
    cause="the accountant states less than its own history of steps implies",
    mend="read epsilon after the last step, at the claim's delta",
    seen="the accountant states {}",
)
UPDATES = Check(
    "updates without a release",
    hook=("optimizer",),
    cause="the model is updated without a noised release",
    mend="skip updates of steps that release nothing",
    seen="{} were made without a noised release",
)
MOVED = Check(
    "state without noise",
    hook=("model",),
    cause="a parameter or buffer is moved by data without noise, such as batch statistics",
    mend="replace batch normalisation, and exclude or freeze parameters outside the optimizer",
)
NEIGHBOUR = Check(
    "sums on neighbouring data",
    MOVE,
    plain="how far replacing one record moves the sums of a training",
    hook=("clipped sum",),
    cause="a record enters more than its own row, as by copies, statistics of a batch or prepared data",
    mend="make each row from one record alone, and clip each record once",
    seen="replacing one record moves a sum by {}",
)
SIZE = Check(
    "number of records",
    plain="what depends on the number of records, which is not public under add/remove",
    hook=("data loader",),
    cause="divisors, rates or steps are computed from the length of the data",
    mend="set them as constants, or claim zero-out neighbours, for which the number of records is public",
)
FINITE = Check(
    "finite for all rows",
    plain="whether NaN or infinite values in a record reach a release",
    measures="nothing; the reason names the rows with NaN or infinite entries that reach a release",
)
REPLAYED = Check("step replayed")
EFFECTIVE = Check(
    "effective noise multiplier",
    MOVE,
    NOISE,
    hook=("noised step",),
    cause="a unit moves the release further than the clip norm, or the noise is divided, as by a mean over units",
    mend="scale noise and clip by the same factor",
    seen="the release has {}",
)
PLAYED = Check("play-back")

CHECKS: dict[str, Check] = {check: check for check in list(globals().values()) if isinstance(check, Check)}
"""All checks of this package, by their names."""
