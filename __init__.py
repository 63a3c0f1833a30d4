"""Fedassay audits privacy claims in federated learning.

A defense states a claim, a federation runs under it, attacks and audits use what an observer receives, and a report
states how far the claim holds.

    run             run a suite and write its report
    resume          resume an interrupted run
    open            open the folder of a finished run
    Run             a finished run: its folder, verdict, claims, rows and figures
    Suite           a suite as an object; a dictionary with the same keys serves as well

    attack_gradient reconstruct images from a gradient of your own model
    attack_labels   infer the labels behind a gradient of your own model
    attack_membership  infer which samples your own model was trained on
    attack_recording   attack what one observer received in a real training
    MessageRecorder    records it, in a training loop of any library
    record_rows        records which rows of a data set a client held, to score attacks

    audit_mechanism audit a claim about a function of an input and a random generator
    audit_outputs   audit a claim with outputs of runs on two neighbouring inputs
    audit_scores    audit a claim with attack scores of independent or clustered runs
    audit_one_run   audit a claim with scores of canaries that fair coins included in one run, or in several
    MembershipResult  AUC and TPR of scores of members and non-members, without a claim
    claim_from_noise the claim of DP-SGD with a noise multiplier, sampling rate and number of steps
    claim_from_accountant  the claim that the history of an accountant implies
    claim_from_rho  the claim of a rho-zCDP mechanism
    epsilon         the epsilons of a federation by unit and adversary, beside other ways of counting
    ball_neighbours pairs of neighbouring inputs for audit_mechanism

    watch           all deterministic checks of a foreign system
    watched         check one recording of a foreign system
    audit_replicas  judge a foreign system by independent runs with and without a unit
    plan_replicas   plan how many runs that takes
    audit_many_units     judge a foreign system by one run with many planted units
    ManyUnits           the planted units of one such run
    Function        any callable mechanism, with its own or with global generators, as one that can be audited
    LoopWatch       watches a loop in plain PyTorch by two lines in it
    PlayBack        frozen rows through one noised step of a foreign system
    Step            one noised step of a foreign system, for PlayBack
    Runner          protocol of a foreign system that can be run with and without a unit
    TrainingRecord  all that was seen of one run of a foreign system
    Release         one noised vector of such a run
    Plant           the unit that an audit puts into a run of a foreign system

    Claim           what a mechanism promises: epsilon, delta, unit, adjacency, observer, rounds
    Unit            what is protected: a sample, a client, a user, a report
    Adjacency       how two neighbouring datasets differ
    Finding         a claim, a measurement and the verdict
    judge           the verdict on a claim, given a measurement

    Defense         base class of defenses
    Prepared        what a defense returns for one federation: its protection and its claims
    Protection      the hooks of the training loop that a defense overrides
    Attack          base class of attacks

Adapters of libraries are imported by their own names: ``fedassay.adapters.opacus.Training``,
``fedassay.adapters.flower.App``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .adapters.function import Function as Function
    from .adapters.loop import LoopWatch as LoopWatch
    from .adapters.many_units import ManyUnits as ManyUnits
    from .adapters.many_units import audit_many_units as audit_many_units
    from .adapters.play_back import PlayBack as PlayBack
    from .adapters.play_back import Step as Step
    from .adapters.replicas import audit_replicas as audit_replicas
    from .adapters.replicas import plan_replicas as plan_replicas
    from .adapters.runner import Runner as Runner
    from .adapters.runner import watch as watch
    from .api import Run as Run
    from .api import attack_recording as attack_recording
    from .api import open as open
    from .api import resume as resume
    from .api import run as run
    from .attacks.attack import Attack as Attack
    from .audit.claim import Adjacency as Adjacency
    from .audit.claim import Claim as Claim
    from .audit.claim import Unit as Unit
    from .audit.finding import Finding as Finding
    from .audit.finding import judge as judge
    from .audit.mechanism.mechanism import audit_mechanism as audit_mechanism
    from .audit.mechanism.mechanism import audit_outputs as audit_outputs
    from .audit.mechanism.mechanism import ball_neighbours as ball_neighbours
    from .audit.metrics import MembershipResult as MembershipResult
    from .audit.supplied.scores import audit_one_run as audit_one_run
    from .audit.supplied.scores import audit_scores as audit_scores
    from .checks.training_record import Plant as Plant
    from .checks.training_record import Release as Release
    from .checks.training_record import TrainingRecord as TrainingRecord
    from .checks.watched_run import watched as watched
    from .defenses.accounting.calculator import epsilon as epsilon
    from .defenses.accounting.stated_laws import claim_from_accountant as claim_from_accountant
    from .defenses.accounting.stated_laws import claim_from_noise as claim_from_noise
    from .defenses.accounting.stated_laws import claim_from_rho as claim_from_rho
    from .defenses.defense import Defense as Defense
    from .defenses.defense import Prepared as Prepared
    from .fl.protection import Protection as Protection
    from .fl.recording import MessageRecorder as MessageRecorder
    from .fl.recording import record_rows as record_rows
    from .suites.attacking.own_model import attack_gradient as attack_gradient
    from .suites.attacking.own_model import attack_labels as attack_labels
    from .suites.attacking.own_model import attack_membership as attack_membership
    from .suites.config.tables.suite import Suite as Suite

__version__ = "0.1.0"

# Imported on first use: `import fedassay` takes milliseconds, and the command line starts without torch.
_HOMES = {
    "run": "api",
    "resume": "api",
    "open": "api",
    "Run": "api",
    "attack_recording": "api",
    "MessageRecorder": "fl.recording",
    "record_rows": "fl.recording",
    "Claim": "audit.claim",
    "Unit": "audit.claim",
    "Adjacency": "audit.claim",
    "Finding": "audit.finding",
    "judge": "audit.finding",
    "MembershipResult": "audit.metrics",
    "audit_mechanism": "audit.mechanism.mechanism",
    "audit_outputs": "audit.mechanism.mechanism",
    "audit_one_run": "audit.supplied.scores",
    "audit_scores": "audit.supplied.scores",
    "claim_from_accountant": "defenses.accounting.stated_laws",
    "claim_from_noise": "defenses.accounting.stated_laws",
    "epsilon": "defenses.accounting.calculator",
    "claim_from_rho": "defenses.accounting.stated_laws",
    "ball_neighbours": "audit.mechanism.mechanism",
    "Defense": "defenses.defense",
    "Prepared": "defenses.defense",
    "Protection": "fl.protection",
    "Attack": "attacks.attack",
    "attack_gradient": "suites.attacking.own_model",
    "attack_labels": "suites.attacking.own_model",
    "attack_membership": "suites.attacking.own_model",
    "Suite": "suites.config.tables.suite",
    "ManyUnits": "adapters.many_units",
    "audit_many_units": "adapters.many_units",
    "Function": "adapters.function",
    "LoopWatch": "adapters.loop",
    "PlayBack": "adapters.play_back",
    "Step": "adapters.play_back",
    "watch": "adapters.runner",
    "Plant": "checks.training_record",
    "TrainingRecord": "checks.training_record",
    "Release": "checks.training_record",
    "Runner": "adapters.runner",
    "audit_replicas": "adapters.replicas",
    "plan_replicas": "adapters.replicas",
    "watched": "checks.watched_run",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedassay' has no attribute {name!r}")
    from .audit.parts import extras_named

    with extras_named():
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
