"""Suite: what a suite file may say, checked before anything runs."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, field_validator, model_validator
from pydantic_core import PydanticCustomError

from ...audit.nearest import nearest
from ...fl.algorithms.algorithm import algorithm_from
from ...fl.data.datasets import KNOWN_DATASETS
from ...fl.models.models import KNOWN_MODELS
from ...fl.partitions.partitions import partition_from
from ...fl.partitions.sampling import sampling_from
from . import json_schemas as shapes
from .canaries import KNOWN_CANARIES
from .margins import GateSpec
from .presets import DROP, KEEP
from .published import Published

Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9_\-]{1,40}$")]


def _parsed_by(parser: Callable[[Any], object]) -> AfterValidator:
    """Keep the value as written, once its parser accepts it."""

    def check(value: Any) -> Any:
        try:
            parser(value)
        except TypeError as error:  # A number or a list where a name or a table should stand.
            raise ValueError(f"cannot be read, got {value!r} ({error})") from None
        return value

    return AfterValidator(check)


def _one_of(what: str, known: tuple[str, ...]) -> AfterValidator:
    def check(value: str) -> str:
        if value not in known:
            raise ValueError(f"unknown {what} {value!r}; known: {nearest(value, known)}")
        return value

    return AfterValidator(check)


DESIGNS = ("independent", "one_run")
Whole = Annotated[int, Field(strict=True)]
Sampling = Annotated[Any, _parsed_by(sampling_from), WithJsonSchema(shapes.SAMPLING)]
Partition = Annotated[Any, _parsed_by(partition_from), WithJsonSchema(shapes.PARTITION)]
Algorithm = Annotated[dict[str, Any], _parsed_by(algorithm_from), WithJsonSchema(shapes.ALGORITHM)]
DatasetName = Annotated[str, _one_of("data set", KNOWN_DATASETS), WithJsonSchema(shapes.one_of(KNOWN_DATASETS))]
ModelName = Annotated[str, _one_of("model", KNOWN_MODELS), WithJsonSchema(shapes.one_of(KNOWN_MODELS))]
CanaryName = Annotated[str, _one_of("canary", KNOWN_CANARIES), WithJsonSchema(shapes.one_of(KNOWN_CANARIES))]
KNOWN_DEVICES = ("cpu", "cuda")
DeviceName = Annotated[str, _one_of("device", KNOWN_DEVICES), WithJsonSchema(shapes.one_of(KNOWN_DEVICES))]
DesignName = Annotated[str, _one_of("design", DESIGNS), WithJsonSchema(shapes.one_of(DESIGNS))]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class PlanChange(_Table):
    """What one defense changes of a federation's public plan, such as Poisson cohorts that its theorem assumes."""

    cohort: Sampling | None = None
    lot: Sampling | None = None
    algorithm: Algorithm | None = None


class FederationSpec(_Table):
    """A federation: data, model, who holds what, how it trains."""

    dataset: DatasetName = "digits"
    model: ModelName = "lenet"
    partition: Partition = "iid"
    clients: Whole = Field(ge=1)
    samples: Whole | None = Field(default=None, ge=1)
    label_noise: float = Field(default=0.0, ge=0, le=1, strict=True)
    """Chance that a training label is redrawn uniformly over all classes; test labels stay."""
    pixel_noise: float = Field(default=0.0, ge=0, strict=True, allow_inf_nan=False)
    """Standard deviation of Gaussian noise on the sensitive pixels of training images. Reconstructions are held against
    the images without it.
    """
    held_out: Whole = Field(default=0, ge=0)
    """More clients that are dealt samples and never take part: the non-members of attacks on clients and writers."""
    rounds: Whole = Field(ge=1)
    cohort: Sampling = "full"
    lot: Sampling = "full"
    algorithm: Algorithm
    calibrated_on: str | None = None
    """The federation whose plan the defenses were calibrated on; this one then only shows what one upload of it
    leaks.
    """


class DefenseSpec(BaseModel):
    """A defense: which part (by default the label), what it changes of the plan; all other keys are the part's
    fields.
    """

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)
    part: str | None = None
    plan: PlanChange | None = None
    federation: str | None = None
    """The only one that it runs on, and is audited on. By default it runs on all that no defense names so, and is
    audited where audits are.
    """
    replicas: Whole | None = Field(default=None, ge=2)
    """Replicas a world in its audit; by default the audit's."""
    seeds: Whole | None = Field(default=None, ge=1)
    """It runs on so many of the suite's seeds only, the first ones: one that takes hours. By default on all."""


class AttackSpec(BaseModel):
    """An attack: which part (by default the label), on which federation or list of them, from which observer's seat (by
    default the attack's own; ``aggregate`` or ``shuffled`` for one on uploads, also ``global_models`` for one that asks
    about candidates round by round), on how many shadows; all other keys are the part's fields.
    """

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)
    part: str | None = None
    federation: str | Annotated[tuple[str, ...], Field(min_length=1)] = "main"
    observer: Literal["uploads", "shuffled", "aggregate", "global_models"] | None = None
    shadows: Whole | None = Field(default=None, ge=2, multiple_of=2)
    """For one on final models: federations that train on a random half of the samples each, every one of which it
    attacks in turn with the others for references. By default 64 for an attack that needs references; others look at
    the trial's one federation.
    """

    @property
    def federations(self) -> tuple[str, ...]:
        """All that it looks at."""
        return (self.federation,) if isinstance(self.federation, str) else self.federation


class AuditSpec(_Table):
    """One pooled audit per claim, by canaries planted in independent replicas, or in one run, of a small federation
    under the same plan.
    """

    federation: str = "main"
    dataset: DatasetName | None = None
    """A claim holds for every data set and model: the replicas may use small ones; by default the federation's."""
    model: ModelName = "logistic"
    clients: Whole = Field(default=2, ge=1)
    samples_per_client: Whole = Field(default=32, ge=1)
    design: DesignName = "independent"
    """Independent trials of one canary, or "one_run": one federation of the first seed with many canaries."""
    canary: CanaryName = "dirac"
    """What is planted: a row along an unused weight or a random direction, or a sample that goes through the model."""
    canaries: Whole | None = Field(default=None, ge=2, le=4000)
    """How many Dirac canaries stand in the one run, each in or out by a fair coin."""
    replicas: Whole = Field(default=1000, ge=2)
    """Replicas a world, spread over the seeds; a one-run audit has none."""
    batch: Whole = Field(default=250, ge=1)
    noise_shares: tuple[Annotated[float, Field(ge=0.001, le=1)], ...] = Field(default=(0.8, 0.5, 0.1), min_length=1)
    """Broken twins that the audit is designed for: each share of the claimed noise gets a test of its own, and so does
    a canary that is not clipped. They share alpha; thresholds are fixed by simulation before any score is seen."""
    canary_norm: float = Field(default=10.0, gt=0, le=1e6)
    """Raw norm of the canary in clip norms; a canary of norm 1 could never show a missing clip. A canary of data has
    the norm that its gradient has."""

    @property
    def estimator(self) -> str:
        """What scores the canaries: along an unused weight the law, along any other direction a plain projection."""
        if self.design == "one_run":
            return "one_run"
        return "likelihood_ratio" if self.canary == "dirac" else "projection"

    @model_validator(mode="after")
    def _one_run(self) -> "AuditSpec":
        if self.design == "one_run" and self.canary != "dirac":
            raise _misplaced("audit.canary", f'design "one_run" plants Dirac canaries, got {self.canary!r}')
        if self.design == "one_run" and self.canaries is None:
            raise _misplaced("audit.design", 'design "one_run" needs canaries = M, how many stand in the run')
        if self.design != "one_run" and self.canaries is not None:
            raise _misplaced("audit.canaries", 'only design = "one_run" plants several canaries in one federation')
        return self


class MutantsSpec(_Table):
    """Planted bugs beside their correct twins: every one that is found, or those ``only`` named."""

    only: tuple[Label, ...] = ()
    power: float = Field(default=0.99, gt=0, lt=1)
    """Chance that the planned trials of one seed refute a mutant."""
    kill_alpha: float = Field(default=0.001, ge=1e-9, lt=1)
    """Level of each test of a mutant; its correct twins together have the suite's ``alpha``."""
    pilot: Whole = Field(default=20_000, ge=100)
    """Trials a world from which the audit of a mechanism is planned; they are never counted."""
    pilot_federations: Whole = Field(default=2_000, ge=100)
    """The same for whole federations, which cost more."""
    limit: Whole = Field(default=1_000_000, ge=1)
    """Trials a world beyond which a bug is out of reach."""


class SuiteSpec(_Table):
    """A whole suite file."""

    name: Label
    version: str = "1"
    description: str = ""
    alpha: float = Field(default=0.01, ge=1e-9, lt=1)
    """Chance that any honest claim of the run is refuted; shared equally by its audits, those by attacks included."""
    seeds: Whole = Field(default=3, ge=1, le=10_000)
    device: DeviceName = "cpu"
    """Where attacks search for images; all else runs on the CPU."""
    federations: dict[Label, FederationSpec]
    defenses: dict[Label, DefenseSpec]
    attacks: dict[Label, AttackSpec] = Field(default_factory=dict)
    audit: AuditSpec | None = None
    mutants: MutantsSpec | None = None
    gate: GateSpec = GateSpec()
    published: tuple[Published, ...] = ()
    """What a paper reports of the same settings."""
    presets: dict[Label, dict[str, Any]] = Field(default_factory=dict)
    """Other runs by name: dotted keys with values that take the file's place, tables to ``keep`` or ``drop``."""

    @field_validator("presets")
    @classmethod
    def _tables_by_name(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for name, changes in value.items():
            for word in (KEEP, DROP):
                tables = changes.get(word, [])
                if not isinstance(tables, list) or not all(isinstance(key, str) for key in tables):
                    raise _misplaced(f"presets.{name}.{word}", f"must be a list of tables' names, got {tables!r}")
        return value

    @model_validator(mode="after")
    def _something_to_do(self) -> "SuiteSpec":
        for place in ("federations", "defenses"):
            if not getattr(self, place) and self.mutants is None:
                raise _misplaced(place, f"at least one [{place}.NAME] table is needed, or a [mutants] table")
        return self

    @model_validator(mode="after")
    def _references(self) -> "SuiteSpec":
        attacks = self.attacks.items()
        asked = [(f"attacks.{label}.federation", name) for label, attack in attacks for name in attack.federations]
        # Whoever calibrates or is audited stands on its own plan: a borrowed one signs nothing.
        whole = {
            f"federations.{label}.calibrated_on": spec.calibrated_on
            for label, spec in self.federations.items()
            if spec.calibrated_on is not None
        }
        if self.audit is not None:
            whole["audit.federation"] = self.audit.federation
        whole |= {
            f"defenses.{label}.federation": spec.federation
            for label, spec in self.defenses.items()
            if spec.federation is not None
        }
        for place, name in [*asked, *whole.items()]:
            if name not in self.federations:
                raise _misplaced(place, f"no federation {name!r}; known: {nearest(name, self.federations)}")
            if place in whole and self.federations[name].calibrated_on is not None:
                raise _misplaced(place, f"federation {name!r} borrows its calibration: name one that has its own")
        return self

    @model_validator(mode="after")
    def _published(self) -> "SuiteSpec":
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
                    text = f"row {number + 1}: {label} runs on {nearest(row.federation, names)} alone"
                    raise _misplaced("published.federation", text)
        return self

    @model_validator(mode="after")
    def _audited_clients(self) -> "SuiteSpec":
        if self.audit is not None and self.audit.federation in self.federations:
            asked, there = self.audit.clients, self.federations[self.audit.federation].clients
            # The default is for all federations, those of one client too.
            if asked > there and "clients" in self.audit.model_fields_set:
                raise _misplaced("audit.clients", f"federation {self.audit.federation!r} has {there}, got {asked}")
        return self


def _misplaced(place: str, text: str) -> PydanticCustomError:
    """An error of the whole suite that knows its dotted place."""
    return PydanticCustomError("misplaced", "{text}", {"text": text, "place": place})
