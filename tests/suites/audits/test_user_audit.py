"""Claims about one user in a suite: a planted user refutes the broken versions and spares the correct one."""

import numpy as np
import pytest
from fedassay.audit.claim import Unit
from fedassay.suites.audits.canary_replicas import canary_for
from fedassay.suites.mutation.mutants import build_mutant
from own_data import write_images
from suite_text import tables

FEDERATION = {"clients": 3, "rounds": 3, "partition": "iid", "alpha": 0.05}
AUDIT = {"samples_per_client": 3, "clients": 3, "replicas": 600, "batch": 300}
CONTROLS = ("control_user_clip_per_sample", "control_user_clip_per_client")
SAMPLED = {"part": "user_level", "plan": {"cohort": {"poisson": 0.5}}}


@pytest.fixture
def text(tmp_path):
    """(defenses, audit changes) -> the tables of a suite, on an archive of images of nine owners."""
    write_images(tmp_path / "own.npz")
    return lambda defenses, **audit: tables(defenses=defenses, audit=AUDIT | audit)


@pytest.fixture
def data(tmp_path):
    return FEDERATION | {"dataset": str(tmp_path / "own.npz")}


def test_the_planted_user_lies_with_as_many_clients_as_the_claim_allows(planned, text, data):
    """Ninety images of nine owners in three parts: every owner has images at every client."""
    (block,) = planned(text=text({"user_level": {}}), **data).blocks
    user = canary_for(block)
    assert (user.unit, user.holders, user.copies > 1) == (Unit.USER, (0, 1, 2), True)
    release = block.release
    assert (release.rate, release.sigma) == (1.0, pytest.approx(block.claim.parameters["noise_multiplier"]))


@pytest.mark.parametrize("canary", ["random", "mislabelled", "crafted"])
def test_other_canaries_are_users_too(planned, text, data, canary):
    (block,) = planned(text=text({"user_level": {}}, canary=canary), **data).blocks
    user = canary_for(block)
    assert (user.unit, user.holders) == (Unit.USER, (0, 1, 2))


def test_one_run_has_no_users_and_says_so(planned, text, data):
    (audit,) = planned(text=text({"user_level": {}}, design="one_run", canaries=100), **data).audits
    assert "and no users" in audit.out_of_scope


@pytest.mark.parametrize("name", CONTROLS)
def test_a_broken_version_moves_the_release_by_more_than_the_bound(name):
    """In units of the bound: 1 on average for the correct version, and 4 samples or 3 clients for the broken ones."""
    mutant, rng = build_mutant(name), np.random.default_rng(0)
    means = [float(getattr(mutant, kind)(1, 300, rng).mean()) for kind in ("correct", "broken")]
    noise = 2.5 / (300 * 5) ** 0.5
    assert means[0] == pytest.approx(1.0, abs=5 * noise)
    assert means[1] == pytest.approx(4.0 if name.endswith("sample") else 3.0, abs=5 * noise)


@pytest.mark.long
@pytest.mark.simulations
def test_clips_per_sample_and_per_client_are_refuted_and_the_correct_stand(suite_file, assay, text, data):
    defenses = {"user_level": {}, "sampled": SAMPLED, **{name: {} for name in CONTROLS}}
    run = assay(suite_file(text=text(defenses), **data))
    audits = {row.defense: row for row in run.records if row.role == "audit"}
    verdicts = {name: row.verdict for name, row in audits.items()}
    assert {name: verdicts[name] for name in CONTROLS} == dict.fromkeys(CONTROLS, "REFUTED")
    assert verdicts["user_level"] == "NOT_REFUTED"
    # It publishes no law: what its runs would miss is not known, what the check of all that is received would miss is.
    assert verdicts["sampled"] == "NOT_REFUTED"
    assert "the implementation checks fail with probability 0.9 if the true eps is at least" in audits["sampled"].reason
