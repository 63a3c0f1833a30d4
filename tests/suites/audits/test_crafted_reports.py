"""Crafted reports: the score is the likelihood ratio of what the observer saw, and a broken coin is found by it."""

import math

import numpy as np
import pytest
from fedassay.suites.audits.crafted_reports import crafted_evidence, report_law
from fedassay.suites.config.resolve import resolve
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.planning.run_plan import plan_run
from scipy.stats import binom

EPSILON, CLIENTS, ROUNDS, TRIALS = 1.0, 3, 2, 4000

COINS = """\
import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from fedassay.audit.claim import Claim
from fedassay.audit.observer import GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.defense import Defense, Prepared
from fedassay.fl.laws import Mixing
from fedassay.fl.protection import Protection
from fedassay.fl.streams import uniform


@dataclass(frozen=True, kw_only=True)
class Law:
    epsilon: float
    mixing: Mixing
    mode: str = ""

    def contribution(self, rows):
        return torch.where(rows >= 0, 1.0, -1.0)

    def sample(self, contribution, rng):
        right = uniform(rng, tuple(contribution.shape)) < 1 / (1 + math.exp(-self.epsilon))
        bits = torch.where(right, contribution, -contribution)
        return torch.cat([bits[..., :2], 0 * bits[..., 2:]], dim=-1)

    def log_density(self, release, contribution):
        logs = self.log_densities(release, contribution).sum(-1)
        if self.mode == "shape":
            return logs.unsqueeze(-1)
        return {"nan": logs * math.nan, "constant": 0 * logs}.get(self.mode, logs)

    def log_densities(self, release, contribution):
        wrong = math.log(1 / (1 + math.exp(self.epsilon)))
        logs = torch.where(release.sign() == contribution, wrong + self.epsilon, wrong).double()
        # Only two coordinates are sent.
        return torch.cat([logs[..., :2], torch.zeros_like(logs[..., 2:])], dim=-1)

    def worst_pair(self, dim):
        dim = 3 if self.mode == "narrow" else dim
        return -torch.ones(dim), torch.ones(dim)


@dataclass(frozen=True, kw_only=True)
class Coins(Protection):
    told: float
    true: float
    mixing: Mixing
    mode: str = ""
    central: bool = False

    def report(self, updates, context, state, rng):
        if self.mode == "own_seed":
            rng = np.random.default_rng(0)
        shape = tuple(updates.values.shape)
        drawn = uniform(rng, (1, *shape[1:]) if self.mode == "shared" else shape)
        right = drawn < 1 / (1 + math.exp(-self.true * (8 if self.mode == "lies" else 1)))
        # A sign of zero would show a zero.
        signs = torch.where(updates.values >= 0, 1.0, -1.0)
        bits = torch.where(right, signs, -signs)
        return updates.with_values(torch.cat([bits[..., :2], 0 * bits[..., 2:]], dim=-1))

    def channel(self, reports, context, state, rng):
        if self.mixing is Mixing.NONE:
            return reports
        if self.mode == "unshuffled":
            return replace(reports, senders=None)
        rows = np.tile(np.arange(reports.values.shape[1]), (len(reports.values), 1))
        places = torch.from_numpy(rng.permuted(rows, axis=1)).unsqueeze(-1)
        moved = reports.values.gather(1, places.expand_as(reports.values))
        return replace(reports, values=moved, senders=None)

    def law(self, observer, plan, client):
        seen = GLOBAL_MODELS if self.central else UPLOADS if self.mixing is Mixing.NONE else SHUFFLED
        return Law(epsilon=self.told / 2, mixing=self.mixing, mode=self.mode) if observer == seen else None


@dataclass(frozen=True, kw_only=True)
class Mine(Defense):
    epsilon: float = {epsilon}
    share: float = 1.0
    mixing: str = "none"
    piece: str = "joint"
    unit: str = "report"
    rate: float = 1.0
    rounds: int = {rounds}
    variant: str = "corrected"
    mode: str = ""
    client: object = 0
    central: bool = False

    def prepare(self, plan):
        mixing = Mixing(self.mixing)
        observer = GLOBAL_MODELS if self.central else UPLOADS if mixing is Mixing.NONE else SHUFFLED
        claim = Claim.stated(self.epsilon * self.rounds, observer=observer, rounds=self.rounds, unit=self.unit)
        claim = replace(claim, part=self.piece, parameters={"rate": self.rate, "client": self.client})
        true = self.epsilon / self.share / 2
        protection = Coins(told=self.epsilon, true=true, mixing=mixing, mode=self.mode, central=self.central)
        return Prepared(protection=protection, claims=(claim,))
"""

TABLES = """\
[defenses.mine]
part = "{module}:Mine"
{fields}

[audit]
replicas = {trials}
batch = 500
"""


@pytest.fixture
def suite_of(suite_file, own_module):
    """(fields) -> the path of a suite with that defense alone."""

    def build(fields="", trials=TRIALS):
        module = own_module(COINS.replace("{epsilon}", str(EPSILON)).replace("{rounds}", str(ROUNDS)))
        tables = TABLES.format(module=module, fields=fields, trials=trials)
        return str(suite_file(text=tables, clients=CLIENTS, samples=40, rounds=ROUNDS))

    return build


@pytest.fixture
def scores_of(suite_of):
    """(fields) -> the ratios of arm 0 and of arm 1, ``(trials, rounds)`` each."""

    def build(fields):
        spec, source = load_suite(suite_of(fields))
        (block,) = plan_run(resolve(spec, source, seed=0)).blocks
        evidence, _ = crafted_evidence(block, report_law(block))
        return [np.concatenate([part.ratios.values for part in side]) for side in evidence]

    return build


def test_of_uploads_it_is_the_ratio_of_the_clients_own_report(scores_of):
    out, within = scores_of("")
    assert out.shape == within.shape == (TRIALS, ROUNDS)
    # Two coins of epsilon 1/2 each: they agree on either side, or cancel.
    assert set(np.unique(within.round(9))) == {-1.0, 0.0, 1.0}
    chance = (1 / (1 + math.exp(-EPSILON / 2))) ** 2
    low, high = binom.ppf([5e-7, 1 - 5e-7], within.size, chance)  # Falsely out once in a million seeds.
    assert low <= np.count_nonzero(within.round(9) == 1) <= high
    assert low <= np.count_nonzero(out.round(9) == -1) <= high


@pytest.mark.simulations
@pytest.mark.parametrize("mixing", ["rows", "coordinates"])
def test_behind_a_shuffler_it_is_a_ratio_too(scores_of, mixing):
    """A likelihood ratio has mean 1 where it does not belong, whatever the law (falsely "no" once in a million)."""
    out, within = scores_of(f'mixing = "{mixing}"')
    for side in (np.exp(out), np.exp(-within)):
        assert abs(side.mean() - 1) < 5 * side.std() / math.sqrt(side.size)
    assert np.exp(within).mean() > 1.02


@pytest.mark.simulations
def test_coordinates_shuffled_apart_show_less_than_whole_rows(scores_of):
    rows, apart = (scores_of(f'mixing = "{mixing}"')[1].mean() for mixing in ("rows", "coordinates"))
    assert 0 < apart < rows


@pytest.mark.long
@pytest.mark.simulations
def test_a_claim_of_one_coordinate_is_tried_on_one(scores_of):
    out, within = scores_of('piece = "one coordinate"')
    assert set(np.unique(within.round(9))) == {-EPSILON / 2, EPSILON / 2}
    assert within.mean() > 0 > out.mean()


@pytest.mark.parametrize(("unit", "share"), [("sample", 0.25), ("report", 1.0)])
def test_a_record_that_is_drawn_by_chance_stands_in_a_report_as_often(unit, share, scores_of):
    """Falsely out once in a million seeds; else the report is of the other record, which both coins seldom turn."""
    _, within = scores_of(f'rate = 0.25\nunit = "{unit}"\nplan = {{ lot = {{ fixed_size = 1 }} }}')
    right = 1 / (1 + math.exp(-EPSILON / 2))
    chance = share * right**2 + (1 - share) * (1 - right) ** 2
    low, high = binom.ppf([5e-7, 1 - 5e-7], within.size, chance)
    assert low <= np.count_nonzero(within.round(9) == 1) <= high


def test_rounds_beyond_the_claim_are_not_looked_at(scores_of):
    assert scores_of("rounds = 1")[0].shape == (TRIALS, 1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("fields", "verdict", "code"),
    [
        ("", "NOT_REFUTED", 0),
        ("share = 0.5", "REFUTED", 10),
        ('mixing = "rows"', "NOT_REFUTED", 0),
        ('share = 0.4\nvariant = "as_published"', "REFUTED", 0),
        ('piece = "half"', None, 12),
    ],
)
def test_they_are_audited(suite_of, assay, fields, verdict, code):
    result = assay(suite_of(fields))
    (row,) = [record for record in result.records if record.role == "audit"]
    assert (row.verdict or None, result.verdict.exit_code) == (verdict, code)
    if verdict:
        assert "the two inputs that differ most" in row.reason
    else:
        assert "got 'half'" in row.reason


BROKEN = {
    "nan": ("log_density of the defense's ReportLaw must return finite numbers or -infinity", 12),
    "shape": ("log_density of the defense's ReportLaw must return one number per report", 12),
    "constant": ("the published distribution gives every report the same likelihood ratio", 11),
    "shared": ("made one at a time", 0),
    "own_seed": ("draw the noise from the generator that is passed to the hook", 12),
    "narrow": ("worst_pair of the defense's ReportLaw must return two vectors of", 12),
    "lies": ("law fits the reports", 10),
}


@pytest.mark.simulations
@pytest.mark.long
@pytest.mark.parametrize("mode", BROKEN)
def test_a_law_or_a_hook_that_is_broken_lets_no_claim_pass(suite_of, assay, mode):
    result = assay(suite_of(f'mode = "{mode}"\nrounds = 1', trials=1000))
    words, code = BROKEN[mode]
    assert words in str([row.reason for row in result.records if row.role in ("audit", "replicas", "check")])
    assert result.verdict.exit_code == code


@pytest.mark.long
def test_a_shuffler_that_does_not_shuffle_is_seen_by_the_senders_place(suite_of, assay):
    for fields, kept in (('mixing = "rows"', "PASSED"), ('mixing = "rows"\nmode = "unshuffled"', "FAILED")):
        records = assay(suite_of(fields + "\nepsilon = 3.0", trials=3000)).records
        found = {row.metric: row.verdict for row in records if row.role == "check"}
        assert found["check_places_of_shuffled_reports"] == kept


@pytest.mark.parametrize("client", ["alice", 99, 0.5, True])
def test_a_claim_of_a_client_that_there_is_not_is_refused_before_anything_runs(suite_of, assay, client):
    from fedassay.suites.config.source import ConfigError

    value = f'"{client}"' if isinstance(client, str) else str(client).lower()
    with pytest.raises(ConfigError, match="the claim's parameter client must be a client number"):
        assay(suite_of(f"client = {value}"))


@pytest.mark.long
@pytest.mark.simulations
def test_a_law_for_who_sees_no_reports_is_not_tried_on_them(suite_of, assay):
    (row,) = [one for one in assay(suite_of("central = true")).records if one.role == "audit"]
    assert row.attack != "crafted_reports"
