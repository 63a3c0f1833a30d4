"""Broken parts of transfers by answers: each gets one clear paragraph that names the fault."""

import re

import pytest
from fedassay.suites.conformance.conformance import check_part

PRELUDE = """\
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


def attack(body):
    return f"""
@dataclass(frozen=True, kw_only=True)
class part(RandomGuess):
    def run(self, view, knowledge, rng):
        sound = RandomGuess.run(self, view, knowledge, rng)
        {body}
"""


def defense(body):
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


SOUND = {"attack": attack("return sound"), "defense": defense("return released, state")}
BAD = {
    "returns None": ("attack", attack("return None"), "must return evidence, got None"),
    "too few queries": (
        "attack",
        attack("return dataclasses.replace(sound, values=sound.values[1:])"),
        r"shape \(5, 10\), not \(6, 10\)",
    ),
    "own randomness": (
        "attack",
        attack("return dataclasses.replace(sound, values=sound.values + torch.rand(6, 10).numpy())"),
        "global random generator",
    ),
    "another observer": (
        "attack",
        attack("return dataclasses.replace(sound, setting=dataclasses.replace(sound.setting, observer=UPLOADS))"),
        "names uploads, not answers",
    ),
    "no teacher": (
        "attack",
        "from fedassay.attacks.transfer.vote_attack import VoteAttack\n"
        + ("@dataclass(frozen=True, kw_only=True)\nclass part(VoteAttack):\n    pass\n"),
        "abstract .* run|abstract .*'run'",
    ),
    "prepares nothing": (
        "defense",
        "@dataclass(frozen=True, kw_only=True)\nclass part(TransferDefense):\n    pass\n",
        "must define the method prepare",
    ),
    "one label for all runs": (
        "defense",
        defense("return ReleasedLabels(labels=released.labels[:1]), state"),
        r"torch.int64 and shape \(replicas, queries\) = \(3, 6\), got .* shape \(1, 6\)",
    ),
    "noise of its own": (
        "defense",
        defense("return ReleasedLabels(labels=torch.randint(10, released.labels.shape)), state"),
        "global random generator",
    ),
}


@pytest.mark.parametrize("kind", SOUND)
def test_a_sound_part_has_no_fault(own_module, kind):
    module = own_module(f"{PRELUDE}\n{SOUND[kind]}")
    outcomes = list(check_part(f"{module}:part", kind=kind))
    assert len(outcomes) >= 4
    assert [outcome.line for outcome in outcomes if not outcome.passed] == []


@pytest.mark.parametrize("fault", BAD)
def test_a_broken_part_is_named_in_one_paragraph(own_module, fault):
    kind, source, pattern = BAD[fault]
    module = own_module(f"{PRELUDE}\n{source}")
    lines = [outcome.line for outcome in check_part(f"{module}:part", kind=kind) if not outcome.passed]
    assert any(re.search(pattern, line) for line in lines), lines
    assert all("\n" not in line and len(line) < 1200 for line in lines)
