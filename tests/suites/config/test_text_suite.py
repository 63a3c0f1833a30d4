"""The suite of texts: its small version runs, and parts for images and classes are refused on texts before a run."""

import os

import pytest
from fedassay.suites.config.resolve import resolve
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.suite_file import load_suite
from suite_text import suite_text, tables

pytestmark = pytest.mark.skipif("FEDASSAY_DATA" not in os.environ, reason="FEDASSAY_DATA is not set: no text is here")
TEXTS = {"dataset": "shakespeare", "model": "text_transformer", "clients": 4, "samples": 8}


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (
            "inversion",
            "reconstructs images of at least 3x3 pixels, but data set shakespeare of federation main has 1x32",
        ),
        ("llg", "needs one class per sample, but model text_transformer .* the next token at each position of a text"),
    ],
)
def test_attacks_on_images_and_classes_are_refused_on_texts(part, says, tmp_path):
    path = tmp_path / "suite.toml"
    path.write_text(suite_text(tables(defenses={"none": {}}, attacks={part: {}}), **TEXTS))
    spec, source = load_suite(str(path))
    with pytest.raises(ConfigError, match=says):
        resolve(spec, source, seed=0)


@pytest.mark.long
@pytest.mark.simulations
def test_the_small_version_recovers_the_texts_and_measures_secrets(assay):
    outcome = assay("text", preset="smoke")
    assert {row.status for row in outcome.records} == {"ok"}
    rows = {(row.attack, row.metric): row for row in outcome.records if row.federation != "adapters"}
    adapters = {(row.attack, row.metric): row for row in outcome.records if row.federation == "adapters"}
    assert adapters["adapter_span", "token_places"].value == 1
    assert adapters["public_text", "token_places"].value < 0.5
    assert rows["embedding_tokens", "token_set_f1"].value == 1
    assert rows["attention_span", "token_places"].value == 1
    assert rows["public_text", "token_places"].value < 0.5
    # Forty speakers, each with a secret, are dealt to four clients that take part and four that do not.
    assert rows["secret_exposure", "exposure"].n == rows["secret_exposure", "exposure_absent"].n == 20
