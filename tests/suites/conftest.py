"""Suites resolved and planned, a row's facts, and a defense of one's own, wrong in a way of the test's choice."""

import pytest
from fedassay.suites.config.resolve import resolve
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.planning.run_plan import plan_run

OWN = """\
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from fedassay.defenses.defense import Defense, Prepared
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian
from fedassay.fl.protection import Protection


class Wrong(Protection):
    def aggregate(self, received, context, state, rng):
        aggregate = super().aggregate(received, context, state, rng)
        {body}
        return aggregate


@dataclass(frozen=True, kw_only=True)
class Mine(Defense):
    def prepare(self, plan):
        return Prepared(protection=Wrong(), claims=())


@dataclass(frozen=True, kw_only=True)
class Signing(LDPGaussian):
    def prepare(self, plan):
        return Prepared(protection=Wrong(), claims=super().prepare(plan).claims)
"""


@pytest.fixture
def resolved(suite_file):
    """(old, new, ..., options) -> the resolved small suite, or the suite of this ``text``, with these changes."""

    def build(*changes, overrides=(), seed=0, extra=(), **suite):
        spec, source = load_suite(str(suite_file(*changes, **suite)), overrides=overrides)
        return resolve(spec, source, seed=seed, extra=extra)

    return build


@pytest.fixture
def planned(resolved):
    """(old, new, ..., options) -> the run plan of that resolved suite."""
    return lambda *changes, **options: plan_run(resolved(*changes, **options))


@pytest.fixture
def own_source():
    """(statements) -> the source of a module whose defenses do this in every round, before the aggregate is used.

    ``Mine`` signs nothing, ``Signing`` what LDPGaussian signs.
    """
    return lambda body: OWN.format(body=body)


@pytest.fixture
def own_defense(own_module, own_source):
    """(statements, module's name) -> the name of a module with the defenses of ``own_source``."""
    return lambda body, **options: own_module(own_source(body), **options)
