"""Suites on models with batch norm and dropout: what needs samples' own gradients is refused or left out, with its
reason, and the rest runs.
"""

import pytest
import torch
from fedassay.attacks.attack import Knowledge, Level, Undefined
from fedassay.attacks.membership.likelihood_ratio import LikelihoodRatio
from fedassay.audit.observer import UPLOADS
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.engine import run_federation
from fedassay.fl.probe import plant_candidates
from fedassay.fl.recorder import LotRecorder, ViewRecorder
from fedassay.fl.streams import Streams
from fedassay.suites.attacking.worst_case import worst_case_hypotheses
from fedassay.suites.config.resolve import plan_of, task_of
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.tables.suite import FederationSpec, PlanChange

TRAINED = 'model = "logistic"'
DP_SGD = "[defenses.dp_sgd]\nepsilon = 4.0\ndelta = 1e-5\nplan = { lot = { poisson = 0.5 } }\n\n[attacks.loss]"
ATTACKS = (
    "[attacks.likelihood_ratio]\ncount = 8\n[attacks.grad_inversion]\niterations = 3\n"
    "[attacks.llg_star]\n[attacks.label_likelihood]\n\n[audit]"
)


@pytest.mark.simulations
@pytest.mark.parametrize("model", ["lenet_bn", "lenet_dropout"])
def test_a_suite_runs_and_states_what_batch_norm_leaves_undefined(assay, suite_file, model):
    """Four clients of 15 samples: their uploads' labels and candidates have no likelihood where the lot is mixed."""
    run = assay(suite_file(TRAINED, f'model = "{model}"', "clients = 2", "clients = 4", "[audit]", ATTACKS))
    skipped = [row for row in run.records if row.status == "skipped" and row.role != "check"]
    left_out = {row.attack for row in skipped}
    assert "failed" not in {row.status for row in run.records}
    assert left_out == ({"likelihood_ratio", "label_likelihood"} if model == "lenet_bn" else set())
    words = "batch norm mixes the samples of a batch, so no sample has a gradient of its own"
    assert all(words in row.reason for row in skipped)
    assert {row.attack for row in run.records} > {"training", "loss", "grad_inversion", "llg_star"}


def test_a_defense_that_clips_samples_is_refused_before_anything_runs(assay, suite_file):
    path = suite_file(TRAINED, 'model = "lenet_bn"', "[attacks.loss]", DP_SGD)
    with pytest.raises(
        ConfigError, match="federation main: defense dp_sgd needs a separate gradient for each sample, but under mod"
    ):
        assay(path)


@pytest.mark.simulations
def test_dropout_leaves_samples_their_gradients(assay, suite_file):
    run = assay(suite_file(TRAINED, 'model = "lenet_dropout"', "[attacks.loss]", DP_SGD))
    assert {row.status for row in run.records if row.defense == "dp_sgd" and row.role != "check"} == {"ok"}


@pytest.mark.simulations
def test_a_claim_of_a_sample_is_out_of_scope_of_an_audit_whose_model_mixes(assay, suite_file):
    """The federation's own model is a logistic regression, which DP-SGD protects; claims of reports are audited."""
    path = suite_file("[attacks.loss]", DP_SGD, "[audit]", '[audit]\nmodel = "lenet_bn"\ncanary = "random"')
    rows = [row for row in assay(path).records if row.role == "audit"]
    verdicts = {row.defense: row.verdict for row in rows}
    assert verdicts["dp_sgd"] == "OUT_OF_SCOPE"
    assert verdicts["ldp_gaussian"] != "OUT_OF_SCOPE"
    (row,) = [row for row in rows if row.defense == "dp_sgd"]
    assert row.reason == (
        "under model lenet_bn batch norm mixes the samples of a batch, so no sample has a gradient of its own; "
        "a group norm does not: torch.nn.GroupNorm(4, 12) as layer norm1, torch.nn.GroupNorm(4, 12) as layer norm2: "
        "this claim is not audited there"
    )


def test_the_rest_of_an_upload_is_not_known_where_dropout_was_drawn():
    """Else the exact ratio would be taken of gradients that nobody had."""
    lot, algorithm = {"poisson": 0.5}, {"name": "fedsgd", "learning_rate": 0.1}
    fields = {"clients": 2, "samples": 40, "rounds": 1, "lot": lot, "algorithm": algorithm}
    spec = FederationSpec(model="lenet_dropout", **fields)
    task, protection = task_of(spec, 0), DPSGDProtection(clip_norm=1.0, noise_multiplier=0.1)
    plan = plan_of(spec, PlanChange(), task)
    probe = plant_candidates(task, count=4, clients=(0,), rng=Streams(0).generator("candidates"))
    lots, recorder = LotRecorder(client=0), ViewRecorder(observer=UPLOADS)
    final = run_federation(task, plan, protection, Streams(0), recorders=[lots, recorder])
    view = recorder.view(plan, final)
    hypotheses = worst_case_hypotheses(task, plan, protection, {0: lots}, view, probe)
    assert hypotheses is None
    known = Knowledge.of(task, plan, protection, level=Level.WORST_CASE, candidates=probe.shown, hypotheses=hypotheses)
    with pytest.raises(Undefined, match="the exact ratio is not defined"):
        LikelihoodRatio(count=4, rest="known").run(view, known, Streams(0).generator("attack"))
    assert torch.isfinite(final).all()
