"""Bundled suites: every part of a kind is in them, they can be prepared, and state what a paper prints."""

from dataclasses import fields

import pytest
import torch
from fedassay.audit.claim import AS_PUBLISHED, Adjacency
from fedassay.defenses.accounting.gaussian import Layer, LayeredGaussian, published_noise
from fedassay.defenses.layers.fedre import published_split
from fedassay.fl.data.dataset import DatasetMissing
from fedassay.fl.data.datasets import available
from fedassay.fl.models.network import Network
from fedassay.suites.config.catalogue import build
from fedassay.suites.config.resolve import resolve
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.planning.run_plan import plan_run
from known_parts import parts_by_name

SUITES = {
    "gradient": ["gradients"],
    "labels": ["labels"],
    "text": ["text"],
    "attributes": ["attributes"],
    "membership": ["membership", "membership_final", "membership_writers", "membership_location30"],
}


@pytest.mark.parametrize("folder", SUITES)
def test_every_attack_of_its_kind_is_in_them(folder):
    kind = f"fedassay.attacks.{folder}."
    wanted = {label for label, part in parts_by_name("attack").items() if part.__module__.startswith(kind)}
    specs = [load_suite(name)[0] for name in SUITES[folder]]
    assert wanted
    assert {entry.part or label for spec in specs for label, entry in spec.attacks.items()} >= wanted


@pytest.mark.long
@pytest.mark.parametrize("name", [name for several in SUITES.values() for name in several])
def test_every_federation_of_it_can_be_prepared(name):
    """A defense that no longer signs what the suite asks for would end a run before its first cell."""
    spec, source = load_suite(name)
    try:
        plan = plan_run(resolve(spec.model_copy(update={"seeds": 1}), source, seed=0))
    except DatasetMissing as missing:
        pytest.skip(str(missing))
    looked_at = {place for attack in spec.attacks.values() for place in attack.federations}
    assert {cell.facts["federation"] for job in plan.jobs for cell in job.cells} >= looked_at


DEFENSES = parts_by_name("defense")
# The other reading of fedre is in the suite of its paper only, and the data of these suites name no owners of samples.
HONEST = {name for name, part in DEFENSES.items() if not part.control} - {"fedre_per_sample", "user_level"}
ON_TRIAL = {name for name, part in DEFENSES.items() if "variant" in {field.name for field in fields(part)}}


def entries(name):
    """(part, its fields) of every defense of a bundled suite."""
    spec, _ = load_suite(name)
    return [(entry.part or label, dict(entry.model_extra or {})) for label, entry in spec.defenses.items()]


@pytest.mark.parametrize("name", ["defenses", "training"])
def test_every_defense_is_in_it(name):
    assert {part for part, _ in entries(name)} >= HONEST


def test_users_have_a_suite_on_data_with_owners():
    assert {part for part, _ in entries("users")} > {"user_level"}


def test_every_paper_that_differs_stands_beside_its_corrected_form_in_the_same_setting():
    found = entries("defenses")
    for name in ON_TRIAL:
        variants = {fields.get("variant", "corrected") for part, fields in found if part == name}
        assert variants == {"corrected", AS_PUBLISHED}


@pytest.mark.parametrize("name", ["defenses", "training"])
def test_every_defense_of_it_can_be_built(name):
    for part, configuration in entries(name):
        assert (
            build("defense", part, configuration).instance.fields().items()
            >= {key: tuple(value) if isinstance(value, list) else value for key, value in configuration.items()}.items()
        )


def test_training_spends_epsilon_8_and_shufflers_have_a_thousand_clients():
    spec, _ = load_suite("training")
    assert all(field.get("epsilon", 8.0) == 8.0 for _, field in entries("training"))
    assert {spec.federations[name].rounds for name in spec.federations} == {20}
    crowd = {label for label, entry in spec.defenses.items() if entry.federation == "crowd"}
    assert spec.federations["crowd"].clients >= 1000
    assert crowd >= {"unis", "apes", "s_apes", "flame", "ldp_min", "pldp", "cldp_sgd"}


TABLE_1 = """
central     0.721 0.771 0.917 0.838
local_only  0.408 0.607 0.564 0.585
ldp_fed_50  0.523 0.654 0.681 0.667
blur_lus_50 0.577 0.689 0.639 0.663
fedre_50    0.601 0.697 0.651 0.673
ldp_fed_10  0.430 0.592 0.594 0.593
blur_lus_10 0.439 0.611 0.606 0.609
fedre_10    0.448 0.630 0.618 0.624
"""


def test_table_1_is_the_papers():
    spec, _ = load_suite("papers/fedre")
    told = {(row.defense, row.metric): row.value for row in spec.published if row.source.startswith("Table 1,")}
    metrics = ("iou", "precision", "recall", "f_score")
    lines = [line.split() for line in TABLE_1.split("\n") if line]
    expected = {
        (line[0], metric): float(value) for line in lines for metric, value in zip(metrics, line[1:], strict=True)
    }
    assert told == expected


@pytest.mark.parametrize("preset", ["smoke", "drawn"])
def test_small_presets_need_no_data_of_anybody(preset):
    spec, _ = load_suite("papers/fedre", preset=preset)
    names = {federation.dataset for federation in spec.federations.values()}
    names |= {spec.audit.dataset} if spec.audit else set()
    assert {available(name) for name in names} <= {"bundled", "drawn here"}


def test_the_warm_started_suite_differs_from_federation_to_federation_only_in_what_it_names():
    """All start from the same public data; one defense at a time differs in reading or aggregation."""
    spec, _ = load_suite("papers/fedre_warm")
    starts = {federation.warm_start.model_dump_json() for federation in spec.federations.values()}
    assert len(starts) == 1
    assert {federation.dataset for federation in spec.federations.values()} == {"synthetic_receipts_tampered"}
    main, rate = spec.federations["main"].model_dump(), spec.federations["paper_rate"].model_dump()
    assert main | {"algorithm": rate["algorithm"]} == rate
    assert rate["algorithm"]["learning_rate"] == 0.005
    for epsilon in (50, 10):
        fields = {kind: spec.defenses[f"{kind}_{epsilon}_mean"].model_extra for kind in ("fedre", "sample")}
        assert fields["fedre"] == fields["sample"]
        assert fields["fedre"]["epsilon"] == epsilon


def test_fixed_scores_are_one_for_each_layer_of_the_model_that_they_were_measured_on():
    """Biases have few numbers to answer with: each scores less than the weight of its layer."""
    spec, _ = load_suite("papers/fedre")
    counted = 0
    for label, defense in spec.defenses.items():
        scores = (defense.model_extra or {}).get("scores")
        if scores:
            federation = spec.federations[defense.federation or "main"]
            network = Network(model=federation.model, shape=(1, 64, 128), classes=2)
            assert len(scores) == len(network.layout.names), label
            assert all(weight > bias for weight, bias in zip(scores[::2], scores[1::2], strict=True))
            counted += 1
    assert counted == 6


@pytest.mark.parametrize(
    ("label", "any_two_reports", "one_sample"),
    [
        ("fedre_50_published", 85.1, 30.9),
        ("fedre_10_published", 9.41, 4.13),
        ("uploads_fedre_50_published", 148, 50.9),
        ("uploads_fedre_10_published", 14.6, 6.23),
    ],
)
def test_the_published_noise_is_worth_what_the_page_states_in_both_readings(label, any_two_reports, one_sample):
    """Ten rounds, all layers: reports up to 2C apart, or one sample's clipped gradient, of norm C, in or out."""
    spec, _ = load_suite("papers/fedre")
    fields = spec.defenses[label].model_extra
    split = published_split(torch.tensor(fields["scores"])).tolist()
    whole = 0.2 * published_noise(epsilon=fields["epsilon"], delta=1e-5 / len(split), rounds=10)
    layers = tuple(Layer(clip_norm=0.2, noise_std=whole / share) for share in split)
    for adjacency, worth in ((Adjacency.REPLACE_ONE, any_two_reports), (Adjacency.ADD_REMOVE, one_sample)):
        release = LayeredGaussian(layers=layers, adjacency=adjacency, releases=10)
        assert release.epsilon(1e-5) == pytest.approx(worth, rel=2e-3)
    if label == "fedre_50_published":
        bias, delta = split.index(max(split)), 1e-5 / len(split)
        assert 50 * split[bias] == pytest.approx(16.9, abs=0.05)
        assert release.layer_epsilon(bias, delta) == pytest.approx(19.7, abs=0.05)
