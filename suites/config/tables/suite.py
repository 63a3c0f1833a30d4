"""Define the tables and keys of a suite file, which are checked before anything runs."""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ....audit.claim import Unit
from ....audit.wording import nearest
from ....fl.utility import UTILITIES
from ..source import DROP, FEDERATION_TABLES, KEEP
from .key_types import (
    Algorithm,
    CanaryPart,
    Cohort,
    DatasetPart,
    DesignName,
    DeviceName,
    EstimatorPart,
    ExecutorName,
    Label,
    Lot,
    ModelPart,
    Normalise,
    Number,
    Partition,
    PreparationPart,
    SuiteTable,
    Whole,
    WithData,
    YesOrNo,
    is_absent,
    is_empty,
    part_table,
)
from .margins import GateSpec
from .other_federations import TransferSpec, VerticalSpec

_LARGEST = 1e12


class Published(BaseModel):
    """A value reported in a paper, for comparison with the value that the run measures."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    federation: str
    """The federation of the suite with the paper's settings."""
    defense: str
    """The defense of the suite that the value is about."""
    metric: str = Field(min_length=1)
    """A metric of the utility, or of the named ``attack``; or ``epsilon``, that of the stated claim about ``unit``."""
    attack: str | None = None
    """The attack of the suite that the value is about; left out for utility and for ``epsilon``."""
    unit: Unit | None = None
    """The unit of the claim whose ``epsilon`` the paper reports; left out for every other metric."""
    value: float = Field(strict=True, ge=-_LARGEST, le=_LARGEST)
    """The reported value, in the metric's own unit."""
    source: str = Field(min_length=1)
    """The place in the paper, such as its table or section."""

    @model_validator(mode="after")
    def _metric_of_its_kind(self) -> "Published":
        if (self.metric == "epsilon") != (self.unit is not None):
            raise ValueError(
                '"unit" (the unit of a claim) must be set for metric "epsilon" and left out for every other metric, '
                f"got metric {self.metric!r} and unit {self.unit}"
            )
        if self.attack is None and self.metric not in (*UTILITIES, "epsilon"):
            # A misspelt metric would otherwise be listed as "not measured" in the report.
            known = nearest(self.metric, (*UTILITIES, "epsilon"))
            raise ValueError(
                f"metric {self.metric!r} is no utility metric ({known}): set the key attack to the attack that this "
                "metric belongs to"
            )
        if self.attack is not None and self.metric in (*UTILITIES, "epsilon"):
            kind = "belongs to a claim" if self.unit is not None else "measures utility"
            raise ValueError(f"metric {self.metric!r} {kind}, not an attack: leave the key attack out")
        return self


_MOST_REPLICAS = 1_000_000
"""Beyond this, a list of the planned blocks of replicas alone would fill the memory."""
_MOST_TABLES = 500
_MOST_CELLS = 50_000
"""A plan holds every cell, with its identity: of so many it takes some ten seconds and 100 MB."""
MOST_TRIALS = 2**18
"""Runs per arm, at most, of the trials of everything that the observer receives."""


class PlanChange(SuiteTable):
    """The changes that one defense makes to a federation's public plan, such as Poisson sampling because its privacy
    theorem assumes it.
    """

    cohort: Cohort | None = None
    """Which clients take part in a round; by default as the federation says."""
    lot: Lot | None = None
    """Which of its samples a client uses in a step; by default as the federation says."""
    algorithm: Algorithm | None = None
    """How clients train and the server updates; by default as the federation says."""


class WarmStartSpec(SuiteTable):
    """The training of the initial model on the server's public data before the first round, which costs no privacy.

    The public data are training images that no client, no held-out client and no non-member has; the test images are
    not among them. In a data set with owners they are all images of some owners.
    """

    samples: Whole = Field(ge=1)
    """Number of public images."""
    steps: Whole = Field(ge=1, le=1_000_000)
    """Number of steps of the training."""
    learning_rate: Number = Field(gt=0, allow_inf_nan=False)
    """Learning rate of every step, > 0."""
    lot: Whole = Field(default=16, ge=1)
    """Number of public images in each step."""
    optimizer: Literal["sgd", "adam"] = "adam"
    """``sgd`` (plain gradient descent) or ``adam``."""


class RecordingSpec(SuiteTable):
    """A recording of a deployment, which stands in place of a training."""

    path: str = Field(min_length=1)
    """Its folder."""
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    """Checksum of its content and truth, which ``fedassay attack`` writes."""


class FederationSpec(WithData):
    """The settings of a federation: data set, model, partition of the data over the clients, and training."""

    model: ModelPart = "lenet"
    """Name of a model (``fedassay list models``), a path, or a table of its ``part`` and options."""
    partition: Partition = "iid"
    clients: Whole = Field(ge=1)
    """Number of clients, among which the samples are distributed."""
    samples: Whole | None = Field(default=None, ge=1)
    """Number of training samples of all clients together; by default as many as the data set offers."""
    label_noise: Number = Field(default=0.0, ge=0, le=1)
    """Probability that a training label is redrawn uniformly over all classes; test labels are unchanged."""
    pixel_noise: Number = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Standard deviation of Gaussian noise on the sensitive pixels of training images. Reconstructions are compared
    with the images without noise.
    """
    normalise: Normalise | None = Field(default=None, exclude_if=is_absent)
    """Public mean and standard deviation by which the model scales its input: ``{ mean = 0.1307, std = 0.3081 }``, or
    one number per channel. Images stay in [0, 1] for attacks and scores. By default the input is used as it is.
    """
    held_out: Whole = Field(default=0, ge=0)
    """Additional clients that hold samples but never take part: the non-members of attacks on clients and writers."""
    rounds: Whole = Field(ge=1, le=100_000)
    """Number of rounds of training."""
    cohort: Cohort = "full"
    """Which clients take part in a round: ``"full"``, ``{ poisson = RATE }``, ``{ fixed_size = N }``, or
    ``{ epoch = N }`` for passes over all clients in cohorts of at most N, in which each client takes part exactly once
    per pass; ``same = true`` keeps the order of all passes, and ``probability = RATE`` then lets it come by a coin.
    """
    lot: Lot = "full"
    """Which of its samples a client uses in a local step: ``"full"``, ``{ poisson = RATE }`` or
    ``{ fixed_size = N }``.
    """
    algorithm: Algorithm
    executor: ExecutorName | None = Field(default=None, exclude_if=is_absent)
    """How the clients' local training is computed: ``sequential``, ``batched`` or ``compiled``. Results agree up to
    rounding. By default sequential, or batched for a hundred clients or more of a linear model.
    """
    warm_start: WarmStartSpec | None = Field(default=None, exclude_if=is_absent)
    """By default the initial model is drawn at random."""
    preparation: PreparationPart | None = Field(default=None, exclude_if=is_absent)
    """What happens to the clients' records before the training, and to the models after it: ``file.py:Class`` or
    ``package.module:Class``, a subclass of ``fedassay.fl.preparation.Preparation``, or a table of it as ``part`` and
    its options. By default clients train on the records as they are.
    """
    recording: RecordingSpec | None = Field(default=None, exclude_if=is_absent)
    """A recording whose messages are attacked. Nothing is trained, and ``clients``, ``rounds`` and ``algorithm`` must
    be the recording's. By default the federation is trained.
    """
    calibrated_on: str | None = None
    """The federation whose plan the defenses are calibrated on. This one then only shows what one upload leaks, and
    states no claims of its own.
    """

    @model_validator(mode="after")
    def _prepared(self) -> "FederationSpec":
        if self.preparation is None:
            return self
        for name in ("warm_start", "label_noise", "pixel_noise"):
            if getattr(self, name):
                raise ValueError(
                    f"a federation with a preparation has no {name}: all its training rows are private, and the "
                    "preparation itself may change them or give an initial model"
                )
        return self


class DefenseSpec(BaseModel):
    """The settings of a defense: the name of its class (by default the entry's label), its changes to the federation's
    plan, and its own configuration.
    """

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)
    part: str | None = None
    """Name of its class (``fedassay list defenses``) or a path; by default the entry's label."""
    plan: PlanChange | None = None
    """Changes to the federation's plan under this defense."""
    federation: str | None = None
    """The only federation that it runs on and is audited on. By default it runs on every federation that no defense
    names here, and is audited on the audit's federation.
    """
    replicas: Whole | None = Field(default=None, ge=2, le=_MOST_REPLICAS)
    """Runs per arm (with and without the canary) in its audit; by default the audit's number."""
    seeds: Whole | None = Field(default=None, ge=1)
    """How many of the suite's seeds it runs on, the first ones, for a defense that takes hours. By default all."""
    sweep: Label | None = Field(default=None, exclude_if=is_absent)
    """The line of a figure that it is a point of, by a name of your choice. A list of values of a field sets it."""


class AttackSpec(BaseModel):
    """The settings of an attack: the name of its class (by default the entry's label), federations, observer, number of
    shadow federations, and its own configuration.

    ``observer`` is by default the attack's own. An attack on uploads can be reduced to the view of ``shuffled`` or
    ``aggregate``, one that scores candidates round by round also to ``global_models``.
    """

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)
    part: str | None = None
    """Name of its class (``fedassay list attacks``) or a path; by default the entry's label."""
    federation: str | Annotated[tuple[str, ...], Field(min_length=1)] = "main"
    """The federation that it attacks, or a list of federations."""
    observer: Literal["uploads", "shuffled", "aggregate", "global_models"] | None = None
    """The observer whose view it receives, if not the attack's own."""
    shadows: Whole | None = Field(default=None, ge=2, le=10_000, multiple_of=2)
    """For an attack on final models: the number of federations that each train on a random half of the samples. The
    attack targets each of them in turn, with the others as reference models. By default 64 for an attack that needs
    reference models; other attacks run on the trial's one federation.
    """

    @property
    def federations(self) -> tuple[str, ...]:
        """The names of all federations on which the attack or defense runs."""
        return (self.federation,) if isinstance(self.federation, str) else self.federation


class AuditSpec(SuiteTable):
    """The settings of the audits. For each claim, canaries are added in many independent runs, or in one run, of a
    small federation under the claim's plan.
    """

    federation: str = "main"
    """The federation whose claims are audited."""
    dataset: DatasetPart | None = None
    """Data set of the audit's runs, by default the federation's. A claim holds for every data set, so a small one will
    do."""
    model: ModelPart = "logistic"
    """Model of the audit's runs. A claim holds for every model, so a small one will do."""
    clients: Whole = Field(default=2, ge=1)
    """Number of clients of the audit's runs, at most the federation's own."""
    samples_per_client: Whole = Field(default=32, ge=1)
    """Number of samples of each of these clients, at most."""
    design: DesignName = "independent"
    """``independent``: independent runs with one canary. ``one_run``: one run of the first seed with many canaries."""
    canary: CanaryPart = "dirac"
    """The canary: a row along an unused weight or a random direction, or a sample that passes through the model."""
    canaries: Whole | None = Field(default=None, ge=2, le=4000)
    """Number of Dirac canaries of the one run, each included by a fair coin."""
    estimator: EstimatorPart | None = Field(default=None, exclude_if=is_absent)
    """Estimator that measures the audit's runs: one of ``fedassay list estimators``, ``package.module:function``,
    ``file.py:function``, or a table of its name as ``part`` and its options. By default each audit method uses the one
    with the most power. Audits by attacks are not affected."""
    replicas: Whole = Field(default=1000, ge=2, le=_MOST_REPLICAS)
    """Runs per arm (with and without the canary), spread over the seeds; unused by a one-run audit."""
    most_replicas: Whole | None = Field(default=None, ge=2, le=_MOST_REPLICAS, exclude_if=is_absent)
    """Runs per arm, at most, of a claim that ``replicas`` runs are too few to test. Such a claim gets as many as refute
    twice its epsilon with probability 0.9, if this number is not exceeded. By default no claim gets more."""
    sequential: YesOrNo = Field(default=False, exclude_if=lambda stops: not stops)
    """Whether the audits look at their runs at planned times and stop as soon as the verdict is certain: the claim is
    refuted, or no further run could refute it. ``replicas`` is then the largest number of runs. All looks together have
    the claim's share of alpha."""
    trials: Whole = Field(default=MOST_TRIALS, ge=0, le=2**20, exclude_if=lambda most: most == MOST_TRIALS)
    """Runs per arm, at most, of the trials of everything that the observer receives. They count 2048 at least: with
    fewer none are made, and the report says so."""
    batch: Whole = Field(default=250, ge=1)
    """Number of runs that are made at once."""
    noise_shares: tuple[Annotated[Number, Field(ge=0.001, le=1)], ...] = Field(
        default=(0.8, 0.5, 0.1), min_length=1, max_length=20
    )
    """The defects that the audit is designed to detect: noise reduced to one of these shares of the claimed noise. Each
    share has a test of its own, and so has a canary that is not clipped. The tests share alpha, and their thresholds
    are fixed by simulation before any score is known."""
    canary_norm: Number = Field(default=10.0, gt=0, le=1e6)
    """Norm of the canary before clipping, in clip norms; a canary of norm 1 could not reveal a missing clip. A canary
    that is a sample has the norm of its gradient."""

    @model_validator(mode="after")
    def _one_run(self) -> "AuditSpec":
        # Only Dirac canaries lie on weights of their own, so that many in one run do not disturb each other.
        if self.design == "one_run" and self.canary != "dirac":
            raise _misplaced("audit.canary", f'design "one_run" plants Dirac canaries, got {self.canary!r}')
        if self.design == "one_run" and self.canaries is None:
            raise _misplaced("audit.design", 'design "one_run" needs canaries = M, the number of canaries in the run')
        if self.design != "one_run" and self.canaries is not None:
            raise _misplaced("audit.canaries", 'only design = "one_run" plants several canaries in one federation')
        if self.design == "one_run" and self.sequential:
            raise _misplaced("audit.sequential", 'design "one_run" makes a single run, which cannot be stopped early')
        if self.most_replicas is not None and self.most_replicas < self.replicas:
            raise _misplaced(
                "audit.most_replicas", f"must be at least audit.replicas = {self.replicas}, got {self.most_replicas}"
            )
        return self


class MutantsSpec(SuiteTable):
    """The settings of audits of mutants (mechanisms with a planted bug) and their correct versions; ``only`` limits
    them to the named mutants.
    """

    only: tuple[Label, ...] = ()
    """Names of the mutants that are audited (``fedassay list mutants``); by default all."""
    power: Number = Field(default=0.99, gt=0, lt=1)
    """Probability that the planned trials of one seed refute a mutant."""
    kill_alpha: Number = Field(default=0.001, ge=1e-9, lt=1)
    """Level of each test of a mutant; the tests of all correct versions together have the suite's ``alpha``."""
    pilot: Whole = Field(default=20_000, ge=100)
    """Pilot trials per arm from which the audit of a mechanism or transfer is planned; they are no evidence."""
    pilot_federations: Whole = Field(default=2_000, ge=100)
    """The same for mutants that are whole federations, whose trials cost more."""
    limit: Whole = Field(default=1_000_000, ge=1)
    """Largest number of trials per arm; a bug that needs more is reported as not detectable."""
    limit_pairs: Whole = Field(default=5_000, ge=1, exclude_if=lambda limit: limit == 5_000)
    """The same for vertical federations, and for pairs that no implementation check refutes."""
    trials: YesOrNo = Field(default=True, exclude_if=bool)
    """Whether to audit by planned trials. Without them implementation checks alone run, mechanisms and transfers are
    left out, and everything that is received is tried only on broken versions that no other check refutes."""
    correct_cases: YesOrNo = Field(default=True, exclude_if=bool)
    """Whether unusual correct cases run too, which have no broken version."""


class Suite(SuiteTable):
    """The content of a whole suite file, with all its tables."""

    name: Label
    """Name of the suite: 1 to 40 letters, digits, ``_`` or ``-``."""
    version: str = "1"
    """Version of the suite, which result rows hold."""
    description: str = ""
    """What the suite is for, in a sentence."""
    alpha: Number = Field(default=0.01, ge=1e-9, lt=1)
    """Probability that any true claim of the run is refuted, shared equally by its audits, including those by
    attacks."""
    seeds: Whole = Field(default=3, ge=1, le=1000)
    """Number of seeds; each federation is trained and attacked once with each of them."""
    device: DeviceName = "cpu"
    """Device of local training and of the attacks that search for images; everything else runs on the CPU."""
    federations: dict[Label, FederationSpec] = Field(default_factory=dict, max_length=_MOST_TABLES)
    """Federations of clients, which hold different samples (horizontal federated learning)."""
    vertical: dict[Label, VerticalSpec] = Field(default_factory=dict, max_length=_MOST_TABLES, exclude_if=is_empty)
    """Federations of parties, which hold different columns of the same people (vertical federated learning)."""
    transfer: dict[Label, TransferSpec] = Field(default_factory=dict, max_length=_MOST_TABLES, exclude_if=is_empty)
    """Federations of teachers, which label public samples for a student (transfer by answers, PATE)."""
    defenses: dict[Label, Annotated[DefenseSpec, part_table("defense")]] = Field(max_length=_MOST_TABLES)
    """The defenses by label, each a table of its settings. A suite without mutants needs one at least."""
    attacks: dict[Label, Annotated[AttackSpec, part_table("attack")]] = Field(
        default_factory=dict, max_length=_MOST_TABLES
    )
    """The attacks by label, each a table of its settings."""
    audit: AuditSpec | None = None
    """How claims about federations of clients are audited; without this table they are not."""
    mutants: MutantsSpec | None = None
    """Audits of mechanisms and defenses with a planted bug."""
    gate: GateSpec = GateSpec()
    """How ``fedassay gate`` compares runs of this suite with a baseline."""
    published: tuple[Published, ...] = ()
    """Figures that a paper reports for the same settings."""
    presets: dict[Label, dict[str, Any]] = Field(default_factory=dict)
    """Variants of the suite by name: dotted keys with replacement values, and tables to ``keep`` or ``drop``."""

    @field_validator("presets")
    @classmethod
    def _tables_by_name(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for name, changes in value.items():
            for word in (KEEP, DROP):
                # Checked although no preset is applied yet: a mistake would otherwise surface in the job that uses it.
                tables = changes.get(word, [])
                if not isinstance(tables, list) or not all(isinstance(key, str) for key in tables):
                    raise _misplaced(f"presets.{name}.{word}", f"must be a list of tables' names, got {tables!r}")
        return value

    @model_validator(mode="after")
    def _something_to_do(self) -> "Suite":
        for place, found in (("federations", self.all_federations), ("defenses", self.defenses)):
            if not found and self.mutants is None:
                raise _misplaced(place, f"at least one [{place}.NAME] table is needed, or a [mutants] table")
        tables = self.federation_tables
        for table, name in tables:
            if others := [other for other, same in tables if same == name and other != table]:
                raise _misplaced(f"{table}.{name}", f"the name {name!r} is already used by [{others[0]}.{name}]")
        return self

    @property
    def federation_tables(self) -> dict[tuple[str, ...], WithData]:
        """The federations of all kinds, keyed by table and name, which give their place in the suite file."""
        kinds: dict[str, dict[str, Any]] = {name: getattr(self, name) for name in FEDERATION_TABLES}
        return {(table, name): one for table, found in kinds.items() for name, one in found.items()}

    @property
    def all_federations(self) -> dict[str, WithData]:
        """The federations of all kinds, keyed by name."""
        return {name: one for (_, name), one in self.federation_tables.items()}

    @property
    def alpha_of_kind(self) -> float:
        """The share of alpha that each kind of federations gets if claims about it are audited."""
        audited = (
            bool(self.federations) or self.audit is not None,
            any(one.audit is not None for one in self.vertical.values()),
            any(one.audit is not None for one in self.transfer.values()),
        )
        return self.alpha / max(1, sum(audited))

    @model_validator(mode="after")
    def _few_cells(self) -> "Suite":
        cells = sum(self._cells_on(name) for name in self.all_federations)
        if cells > _MOST_CELLS:
            raise _misplaced(
                "seeds",
                f"the suite plans {cells} cells (trainings and attacks, on each federation, for each defense and seed),"
                f" and at most {_MOST_CELLS} are planned: choose fewer seeds, or fewer tables with only or a preset",
            )
        return self

    def _cells_on(self, federation: str) -> int:
        basis = self.federations[federation].calibrated_on if federation in self.federations else None
        own = basis or federation
        found = [one for one in self.defenses.values() if one.federation == own]
        found = found or [one for one in self.defenses.values() if one.federation is None]
        attacks = sum(federation in attack.federations for attack in self.attacks.values())
        return (1 + attacks) * sum(min(self.seeds, one.seeds or self.seeds) for one in found)

    @model_validator(mode="after")
    def _references(self) -> "Suite":
        attacks = self.attacks.items()
        attacked = [(f"attacks.{label}.federation", name) for label, attack in attacks for name in attack.federations]
        # Calibration and audits need a federation with a plan of its own: one that borrows it states no claims.
        own_plan = {
            f"federations.{label}.calibrated_on": spec.calibrated_on
            for label, spec in self.federations.items()
            if spec.calibrated_on is not None
        }
        if self.audit is not None:
            own_plan["audit.federation"] = self.audit.federation
        own_plan |= {
            f"defenses.{label}.federation": spec.federation
            for label, spec in self.defenses.items()
            if spec.federation is not None
        }
        for place, name in [*attacked, *own_plan.items()]:
            # The table [audit] is about federations of clients; other kinds have tables of their own.
            known = list(self.federations) if place == "audit.federation" else self.all_federations
            if name not in known:
                raise _misplaced(place, f"no federation {name!r}; known: {nearest(name, known)}")
            if place in own_plan and name in self.federations and self.federations[name].calibrated_on is not None:
                raise _misplaced(
                    place,
                    f"federation {name!r} takes its calibration from another federation: name one with its own "
                    "calibration",
                )
        return self

    @model_validator(mode="after")
    def _published(self) -> "Suite":
        # Checked here and not in `Published`, which does not know the tables of the suite.
        for number, row in enumerate(self.published):
            for field in ("federation", "defense", "attack"):
                known: dict[str, Any] = getattr(self, f"{field}s")
                label = getattr(row, field)
                if label is not None and label not in known:
                    text = f"row {number + 1}: no {field} {label!r}; known: {nearest(label, known)}"
                    raise _misplaced(f"published.{field}", text)
            own = self.defenses[row.defense].federation
            places: dict[str, tuple[str, ...]] = {row.defense: (own,) if own else ()}
            if row.attack is not None:
                places[row.attack] = self.attacks[row.attack].federations
            for label, names in places.items():
                if names and row.federation not in names:
                    text = f"row {number + 1}: {label} runs only on {nearest(row.federation, names)}"
                    raise _misplaced("published.federation", text)
        return self

    @model_validator(mode="after")
    def _audited_records(self) -> "Suite":
        audit = self.audit
        if audit is not None and audit.dataset is not None and audit.federation in self.federations:
            own = self.federations[audit.federation]
            if own.preparation is not None and audit.dataset != own.dataset:
                raise _misplaced("audit.dataset", "must be left out where the federation has a preparation of its data")
        return self

    @model_validator(mode="after")
    def _audited_clients(self) -> "Suite":
        if self.audit is not None and self.audit.federation in self.federations:
            requested, available = self.audit.clients, self.federations[self.audit.federation].clients
            # Only an explicit number is checked: the default of two must also do for a federation of one client.
            if requested > available and "clients" in self.audit.model_fields_set:
                raise _misplaced(
                    "audit.clients",
                    f"must be at most {available}, the clients of federation {self.audit.federation!r}, got "
                    f"{requested}",
                )
        return self


# pydantic locates an error of such a check at the whole suite, whose line would help no user.
def _misplaced(place: str, text: str) -> PydanticCustomError:
    """An error found by a check of the whole suite, with the dotted key that it belongs to."""
    return PydanticCustomError("misplaced", "{text}", {"text": text, "place": place})
