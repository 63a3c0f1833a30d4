"""Broken parts of a user, of every kind: each gets one clear paragraph that names the fault."""

import re
import sys
from itertools import islice

import pytest
from fedassay.suites.config.source import ConfigError
from fedassay.suites.conformance.check import run_checks
from fedassay.suites.conformance.conformance import check_part, checks_and_subject, kind_of

PRELUDE = """\
import random, time
from dataclasses import dataclass, field
import numpy as np
import torch
from torch import nn
from fedassay.attacks.attack import Attack, clustered_setting
from fedassay.attacks.membership.loss_series import LossSeries
from fedassay.audit.claim import Claim
from fedassay.audit.evidence import MembershipScores
from fedassay.audit.measurement import Measurement
from fedassay.audit.estimators.clopper_pearson import clopper_pearson
from fedassay.defenses.defense import Defense, Prepared
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.algorithms import Scaffold
from fedassay.fl.canary import Canary
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.partitions import IID
from fedassay.fl.sampling import Poisson, Sampling
from fedassay.fl.protection import Protection

def data(images=None, labels=None, classes=3, owners=None, seed=0, task="classification"):
    rng = np.random.default_rng(seed)
    images = torch.from_numpy(rng.random((30, 1, 4, 4), dtype=np.float32)) if images is None else images
    labels = torch.arange(30) % 3 if labels is None else labels
    return Dataset(name="mine", train_images=images, train_labels=labels, test_images=images.clone(),
                   test_labels=labels.clone(), classes=classes, train_owners=owners, task=task)

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))
"""


def model(body, head="class Mine(nn.Module):"):
    """A module around one linear layer, whose forward has this body; and the function that builds it."""
    return f"""
{head}
    def __init__(self, shape, classes):
        super().__init__()
        self.layer = nn.Linear(shape[0] * shape[1] * shape[2], classes)
        self.calls = 0
    def forward(self, x):
        logits = self.layer(x.flatten(1))
        {body}

def part(shape, classes):
    return Mine(shape, classes)
"""


def dataclass_of(base, body):
    return f"@dataclass(frozen=True, kw_only=True)\nclass part({base}):\n    {body}\n"


def defense(body):
    """A defense like `ldp_gaussian`, whose report hook has this body after the sound one."""
    return f"""
class Broken(LDPGaussianProtection):
    def report(self, updates, context, state, rng):
        sound = super().report(updates, context, state, rng)
        {body}

@dataclass(frozen=True, kw_only=True)
class part(LDPGaussian):
    def prepare(self, plan):
        right = super().prepare(plan)
        return Prepared(protection=Broken(**vars(right.protection)), claims=right.claims)
"""


def attack(body, more=""):
    return f"""
{more}
@dataclass(frozen=True, kw_only=True)
class part(LossSeries):
    def run(self, view, knowledge, rng):
        sound = LossSeries.run(self, view, knowledge, rng)
        {body}
"""


TRANSFER_PRELUDE = """\
import dataclasses
from dataclasses import dataclass
import numpy as np
import torch
from fedassay.attacks.transfer.random_guess import RandomGuess
from fedassay.audit.observer import UPLOADS
from fedassay.defenses.transfer.defense import PreparedTransfer, TransferDefense
from fedassay.defenses.transfer.gnmax import GNMax
from fedassay.defenses.transfer.defense import NoisyVotes
from fedassay.fl.transfer.protection import ReleasedLabels, TransferProtection
"""


def transfer_attack(body):
    return f"""
@dataclass(frozen=True, kw_only=True)
class part(RandomGuess):
    def run(self, view, knowledge, rng):
        sound = RandomGuess.run(self, view, knowledge, rng)
        {body}
"""


def transfer_defense(body):
    return f"""
class Broken(NoisyVotes):
    def aggregate_votes(self, answers, context, state, rng):
        released, state = super().aggregate_votes(answers, context, state, rng)
        {body}

@dataclass(frozen=True, kw_only=True)
class part(GNMax):
    def prepare(self, plan):
        right = super().prepare(plan)
        return PreparedTransfer(protection=Broken(**vars(right.protection)), claims=right.claims)
"""


LEAKY = """
KNOWN = {}
@dataclass(frozen=True, kw_only=True)
class part(LossSeries):
    def plant(self, task, rng):
        planted = LossSeries.plant(self, task, rng)
        KNOWN["member"] = planted.member.copy()
        return planted
    def run(self, view, knowledge, rng):
        import dataclasses
        sound = LossSeries.run(self, view, knowledge, rng)
        return dataclasses.replace(sound, values=KNOWN["member"].astype(float))
"""
WITH = "import dataclasses; return dataclasses.replace(sound, values=%s)"

BAD = {
    "dataset": {
        "labels out of range": ("def part():\n    return data(classes=2)", r"must be in \[0, 2\), got 0 to 2"),
        "labels in floats": ("def part():\n    return data(labels=torch.zeros(30))", "int64 .* torch.float32"),
        "a class without a sample": ("def part():\n    return data(classes=4)", r"classes \[3\] of 4 have no"),
        "equal numbers to predict": (
            "def part():\n    return data(labels=torch.ones(30, 2), classes=2, task='regression')",
            r"labels \[0, 1\] of 2 have one value in all training",
        ),
        "returns None": ("def part():\n    data()", "must be a fedassay Dataset, .* got NoneType"),
        "raises": ("def part():\n    raise KeyError('column')", "KeyError: 'column'"),
        "other data at every load": (
            "N = []\ndef part():\n    N.append(1)\n    return data(seed=len(N))",
            "a second load gave different data",
        ),
        "global generator of torch": ("def part():\n    return data(images=torch.rand(30, 1, 4, 4))", "PyTorch"),
        "global generator of NumPy": ("def part():\n    np.random.rand()\n    return data()", "of NumPy"),
        "global generator of Python": ("def part():\n    random.random()\n    return data()", "of Python"),
        "a list": ("part = [1, 2]", r"must give pairs \(image, label\), got int"),
        "slow": ("def part():\n    time.sleep(9)\n    return data()", "limit of 0.5 s"),
    },
    "model": {
        "logits of a wrong shape": (model("return logits[:, :1]"), r"must return logits \(n, 10\)"),
        "a tuple of logits": (model("return logits, x"), "got tuple"),
        "model returns None": ("def part(shape, classes):\n    pass", "must return an nn.Module, got NoneType"),
        "a model that raises": ("def part(shape, classes):\n    raise OSError('no weights')", "OSError: no weights"),
        "a model of no arguments": ("def part():\n    return net((1, 8, 8), 2)", "takes 0 positional"),
        "double logits": (model("return logits.double()"), "float64"),
        "infinite logits": (model("return logits / 0"), "not finite"),
        "side effects between calls": (
            model("self.calls += 1\n        return logits + self.calls"),
            "keeps state|other logits",
        ),
        "noise in the forward pass": (model("return logits + torch.randn_like(logits)"), "PyTorch"),
        "mixes a batch": (
            model("return logits - logits.mean(0)"),
            "mixes the samples|when the other samples of its batch change",
        ),
        "running statistics": (
            "def part(shape, classes):\n    return nn.Sequential(nn.BatchNorm2d(shape[0]), net(shape, classes))",
            "GroupNorm",
        ),
        "probabilities": (model("return logits.softmax(-1)"), "sums to 1, as after a softmax.*return the logits"),
        "changes its input": (
            model("x.zero_()\n        return logits"),
            "changes the images that it is given, in place",
        ),
        "one fixed initial model": (
            "def part(shape, classes):\n    made = net(shape, classes)\n    nn.init.zeros_(made[1].weight)\n"
            "    nn.init.zeros_(made[1].bias)\n    return made",
            "all seeds give the same initial parameters",
        ),
    },
    "algorithm": {
        "a missing method": ("class part:\n    local_steps = 1", "lacks"),
        "a wrong linear scale": (dataclass_of("FedAvg", "linear_scale = -7.0"), "times linear_scale"),
        "an algorithm with state": (
            dataclass_of(
                "FedSGD",
                "seen = []\n    def combine(self, model, aggregate):\n"
                "        self.seen.append(1)\n        return model + len(self.seen) * aggregate",
            ),
            "keeps state|from the aggregate|when the other replicas",
        ),
        "replicas mixed": (
            dataclass_of("FedSGD", "def combine(self, model, aggregate):\n        return model + aggregate.mean(0)"),
            "when the other replicas",
        ),
        "one count for all replicas": (
            dataclass_of("Scaffold", "def keep(self, model, local, state):\n        return {'count': torch.ones(1)}"),
            r"count has shape \(1,\): replicas must come first",
        ),
        "another start where nothing was kept": (
            dataclass_of(
                "Scaffold",
                "def start(self, model, shared=None, kept=None):\n"
                "        return super(part, self).start(model, shared, kept or {'control': torch.ones_like(model)})",
            ),
            "start must treat a state of zeros like no state",
        ),
        "any learning rate": (
            dataclass_of("FedSGD", "def __post_init__(self):\n        pass"),
            "accepted learning_rate = -1.0",
        ),
    },
    "partition": {
        "samples dealt twice": (
            dataclass_of("IID", "def split(self, labels, clients, rng):\n        return (np.arange(4),) * clients"),
            "two clients hold the same sample",
        ),
        "an empty client": (
            dataclass_of("IID", "def split(self, labels, clients, rng):\n        return (np.arange(0),) * clients"),
            "a client got no sample",
        ),
        "own random hands": (
            dataclass_of(
                "IID",
                "def split(self, labels, clients, rng):\n"
                "        return super(part, self).split(labels, clients, np.random.default_rng())",
            ),
            "two calls with equal seeds give different partitions",
        ),
        "an unknown exchangeable": (dataclass_of("IID", "exchangeable = 'some'"), "must state exchangeable"),
    },
    "sampling": {
        "a false rate": (
            "@dataclass(frozen=True)\nclass part(Poisson):\n    probability: float = 0.5\n"
            "    def rate(self, n):\n        return 0.1\n",
            "the part states the rate 0.1, but drew",
        ),
        "a mask of numbers": (
            "class part(Sampling):\n"
            "    def draw(self, rng, replicas, n, turn=0):\n        return torch.ones(replicas, n)\n"
            "    def rate(self, n):\n        return 1.0\n",
            "must hold booleans",
        ),
    },
    "canary": {
        "a canary of zeros": (
            "def part(inputs):\n    return Canary(unit=inputs.unit, present=torch.zeros(inputs.plan.layout.dim))",
            "zero|norm",
        ),
        "a canary that is no canary": ("def part(inputs):\n    return 3", "must return a Canary"),
    },
    "attack": {
        "an attack that knows the members": (LEAKY, "AUC 1.00, where chance gives"),
        "an attack that draws elsewhere": (attack(WITH % "sound.values + np.random.randn()"), "NumPy"),
        "an attack with NaN": (attack(WITH % "sound.values * np.nan"), "NaN|finite"),
        "an attack without evidence": (attack("return None"), "must return evidence"),
        "an attack that changes the model": (attack("view.final_model.zero_(); return sound"), "changed the models"),
    },
    "estimator": {
        "a bound that is too high": (
            "import dataclasses\n"
            "def part(scores: MembershipScores, *, delta: float, alpha: float, threshold) -> Measurement:\n"
            "    sound = clopper_pearson(scores, delta=delta, alpha=alpha, threshold=threshold)\n"
            "    return dataclasses.replace(sound, epsilon_low=sound.epsilon_low + 3)\n",
            "exceeds the true epsilon|null: FAILS",
        ),
        "an estimator of anything": ("def part(scores):\n    return 3.0", "must be a function whose first"),
    },
    "defense": {
        "half of the noise": (
            defense(
                "return updates.with_values((sound.values + super().report(updates, context, state, rng).values) / 2)"
            ),
            "noise scale",
        ),
        "noise from elsewhere": (
            defense("return sound.with_values(sound.values + torch.randn_like(sound.values))"),
            "PyTorch",
        ),
        "noise shared by replicas": (
            defense("return sound.with_values(sound.values[:1].expand_as(sound.values).clone())"),
            "share their noise",
        ),
        "a defense with state": (
            "SEEN = []\n" + defense("SEEN.append(1); return sound.with_values(sound.values + len(SEEN))"),
            "keeps state",
        ),
        "a median that states a mean": (
            defense(
                "return sound\n    sums = 'mean'\n    def aggregate(self, received, context, state, rng):\n"
                "        return received.values.median(1).values"
            ),
            "a cohort in blocks differs",
        ),
        "a mean that states a sum": (defense("return sound\n    sums = 'sum'"), "a cohort in blocks differs"),
        "reports that depend on each other": (
            defense("return sound.with_values(sound.values - sound.values.mean(1, keepdim=True))\n    sums = 'mean'"),
            "a cohort in blocks differs",
        ),
        "noise of all clients in one draw": (
            defense(
                "n, d = updates.values.shape[1:]\n"
                "        noise = torch.from_numpy(rng.standard_normal((d, n))).float().T\n"
                "        return sound.with_values(sound.values + noise)\n    sums = 'mean'"
            ),
            "must treat each row alone and draw row after row",
        ),
        "claims that are no claims": (
            dataclass_of(
                "LDPGaussian",
                "def prepare(self, plan):\n        return Prepared(protection=Protection(), claims=(4.0,))",
            ),
            "must be a tuple of Claim",
        ),
        "prepare returns None": (
            dataclass_of("Defense", "def prepare(self, plan):\n        return None"),
            "must return Prepared",
        ),
        "unpicklable": (
            dataclass_of("LDPGaussian", "def __reduce__(self):\n        raise TypeError('cannot pickle a lock')"),
            "cannot be pickled: TypeError: cannot pickle a lock",
        ),
    },
    "transfer attack": {
        "returns None": (transfer_attack("return None"), "must return evidence, got None"),
        "too few queries": (
            transfer_attack("return dataclasses.replace(sound, values=sound.values[1:])"),
            r"must have shape \(6, 10\), got \(5, 10\)",
        ),
        "own randomness": (
            transfer_attack("return dataclasses.replace(sound, values=sound.values + torch.rand(6, 10).numpy())"),
            "global random generator",
        ),
        "another observer": (
            transfer_attack(
                "return dataclasses.replace(sound, setting=dataclasses.replace(sound.setting, observer=UPLOADS))"
            ),
            "must name the observer answers, got uploads",
        ),
        "no teacher": (
            "from fedassay.attacks.transfer.vote_attack import VoteAttack\n"
            + ("@dataclass(frozen=True, kw_only=True)\nclass part(VoteAttack):\n    pass\n"),
            "abstract .* run|abstract .*'run'",
        ),
    },
    "transfer defense": {
        "prepares nothing": (
            "@dataclass(frozen=True, kw_only=True)\nclass part(TransferDefense):\n    pass\n",
            "must define the method prepare",
        ),
        "one label for all runs": (
            transfer_defense("return ReleasedLabels(labels=released.labels[:1]), state"),
            r"torch.int64 and shape \(replicas, queries\) = \(3, 6\), got .* shape \(1, 6\)",
        ),
        "noise of its own": (
            transfer_defense("return ReleasedLabels(labels=torch.randint(10, released.labels.shape)), state"),
            "global random generator",
        ),
    },
}
"""By kind, the name of the fault -> the source that defines ``part``, and a pattern of the paragraph."""
NUMBERS = "torch.linspace(-1, 1, 60).view(30, 2)"
FAULTS = [
    # A defense takes seconds of checks.
    pytest.param(kind, fault, marks=[pytest.mark.long] if kind == "defense" and place > 2 else [])
    for kind, faults in BAD.items()
    for place, fault in enumerate(faults)
]


def lines_of(own_module, kind, source, limit=60.0):
    """The checks of a part that are not passed, and how many were made."""
    prelude = TRANSFER_PRELUDE if kind.startswith("transfer") else PRELUDE
    module = own_module(f"{prelude}\n{source}")
    outcomes = list(check_part(f"{module}:part", kind=kind.split()[-1], limit=limit))
    return [outcome.line for outcome in outcomes if not outcome.passed], len(outcomes)


@pytest.mark.simulations
@pytest.mark.parametrize(("kind", "fault"), FAULTS)
def test_a_broken_part_is_named_in_one_paragraph(own_module, kind, fault):
    source, pattern = BAD[kind][fault]
    lines, _ = lines_of(own_module, kind, source, limit=0.5 if fault == "slow" else 60.0)
    assert any(re.search(pattern, line) for line in lines), lines
    assert all("\n" not in line and len(line) < 4000 for line in lines)


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("dataset", f"def part():\n    return data(labels={NUMBERS}, classes=2, task='regression')"),
        ("dataset", f"def part():\n    return data(labels={NUMBERS} > 0, classes=2, task='multilabel')"),
        ("transfer attack", transfer_attack("return sound")),
        ("transfer defense", transfer_defense("return released, state")),
    ],
)
def test_a_sound_part_has_no_fault(own_module, kind, source):
    lines, made = lines_of(own_module, kind, source)
    assert lines == []
    assert made >= 4


OWN_ALGORITHM = """\
from dataclasses import dataclass
from fedassay.defenses.clipped.claims import ClippedDefense
from fedassay.defenses.sample_level.dp_sgd import DPSGD
from fedassay.fl.algorithms import BoundedUpdate, FedAvg

@dataclass(frozen=True, kw_only=True)
class Mine(FedAvg):
    clip_norm: float

@dataclass(frozen=True, kw_only=True)
class Needing(ClippedDefense):
    bounded: bool = False

    def prepare(self, plan):
        kind, name = (BoundedUpdate, "radius") if self.bounded else (Mine, "clip_norm")
        if not isinstance(plan.algorithm, kind) or getattr(plan.algorithm, name) != self.clip_norm:
            raise ValueError(f"algorithm must be {kind.__name__} with the clip norm, got {plan.algorithm}")
        return DPSGD(epsilon=self.epsilon, delta=self.delta, clip_norm=self.clip_norm).prepare(plan)
"""


def test_a_defense_is_checked_under_the_algorithm_that_it_needs_at_its_own_clip_norm(own_module):
    part = f"{own_module(OWN_ALGORITHM)}:Needing"
    for bounded, name in ((False, "Mine"), (True, "BoundedUpdate")):
        checks, subject = checks_and_subject(part, options={"clip_norm": 0.5, "bounded": bounded})
        built, prepares = islice(run_checks(checks, subject), 2)
        assert built.passed
        assert prepares.remark.startswith(f"under {name}: eps 4")


NOT_FOUND = {
    "missing function": ("def other():\n    pass", "part", "has no 'part'; it has: other"),
    "import error": ("import no_such_package_here", "part", "No module named 'no_such_package_here'"),
    "circular import": ("from {module} import later\nlater = 1", "part", "cannot import name 'later'.*circular import"),
    "a module, not an attribute": (
        "import json as part",
        "part",
        "is a module: name an object in it, such as json:Name",
    ),
    "syntax error": ("def part(:", "part", "SyntaxError"),
    "exits": ("raise SystemExit(3)", "part", "SystemExit: 3"),
    "a private error": ("class Mine(Exception): pass\nraise Mine('no licence')", "part", "Mine: no licence"),
}


@pytest.mark.parametrize("fault", NOT_FOUND)
def test_a_part_that_cannot_be_found_is_refused_in_one_paragraph(own_module, fault):
    source, name, pattern = NOT_FOUND[fault]
    module = f"own_absent_{len(source)}"
    own_module(source.replace("{module}", module), name=module)
    with pytest.raises(ConfigError, match=pattern) as refused:
        list(check_part(f"{module}:{name}", kind="model"))
    assert "\n" not in str(refused.value)
    sys.modules.pop(module, None)


def test_an_unknown_option_is_named_with_the_known_ones(own_module):
    module = own_module(PRELUDE + "\ndef part(shape, classes, *, width=3):\n    return net(shape, classes)")
    (outcome,) = check_part(f"{module}:part", kind="model", options={"widht": 3})
    assert "has no option 'widht'; it has: width" in outcome.line


def test_a_model_whose_gradients_need_a_loop_gets_a_remark_and_no_warning(own_module, recwarn):
    module = own_module(PRELUDE + model("return logits if x.sum() > 0 else -logits"))
    outcomes = list(check_part(f"{module}:part", kind="model"))
    assert all(outcome.passed for outcome in outcomes)
    assert sum("one sample at a time" in outcome.remark for outcome in outcomes) == 1
    assert not list(recwarn)


def test_the_kind_is_found_out_from_the_name_or_from_the_part(own_module):
    assert kind_of("dp_sgd") == "defense"
    assert kind_of("dirichlet") == "partition"
    with pytest.raises(ConfigError, match="give --kind model or --kind attack"):
        kind_of("imprint")
    with pytest.raises(ConfigError, match="unknown part 'dp_sgdd'; known: dp_sgd"):
        kind_of("dp_sgdd")
    module = own_module(
        "from fedassay.fl.partitions import IID\nfrom fedassay.fl.algorithms import FedSGD\n"
        "from fedassay.defenses.without_dp.none import Undefended\n"
        "def net(shape, classes): pass\ndef rows(): pass\ndef row(inputs): pass\ndef other(x, y): pass\n"
    )
    found = {name: kind_of(f"{module}:{name}") for name in ("IID", "FedSGD", "Undefended", "net", "rows", "row")}
    assert list(found.values()) == ["partition", "algorithm", "defense", "model", "dataset", "canary"]
    with pytest.raises(ConfigError, match="does not follow from"):
        kind_of(f"{module}:other")
