"""Presets of a suite file: what they change, what they leave out, and how a wrong one is reported."""

import fedassay
import pytest
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.execution.run import relaunch

PRESET = """
[[published]]
federation = "main"
defense = "ldp_gaussian"
metric = "accuracy"
value = 0.9
source = "Table 1"

[presets.smoke]
seeds = 2
"federations.main.rounds" = 1
"defenses.ldp_gaussian.epsilon" = 2.0
"federations.main.lot" = { poisson = 0.5 }
drop = ["attacks.loss"]
"""


@pytest.fixture
def with_preset(suite_file, tiny):
    return lambda *changes, text=PRESET: str(suite_file(*changes, text=tiny + text))


@pytest.fixture
def refusal(with_preset):
    def read(*changes, preset="smoke", **options):
        path = with_preset(*changes)
        with pytest.raises(ConfigError) as refused:
            load_suite(path, preset=preset, **options)
        return str(refused.value).replace(path, "suite.toml")

    return read


def test_a_preset_changes_what_it_names_and_nothing_else(with_preset):
    whole, small = load_suite(with_preset())[0], load_suite(with_preset(), preset="smoke")[0]
    assert (whole.seeds, small.seeds) == (1, 2)
    assert (whole.federations["main"].rounds, small.federations["main"].rounds) == (2, 1)
    assert small.federations["main"].lot == {"poisson": 0.5}
    assert small.defenses["ldp_gaussian"].model_extra == {"delta": 1e-5, "epsilon": 2.0}
    assert list(small.attacks) == ["random_scores"]
    assert list(whole.attacks) == ["loss", "random_scores"]
    assert small.audit == whole.audit
    assert small.presets == whole.presets == {}


def test_the_command_line_goes_before_the_preset(with_preset):
    assert load_suite(with_preset(), preset="smoke", overrides=("seeds=3",))[0].seeds == 3


def test_what_was_published_for_a_dropped_defense_goes_with_it(with_preset):
    path = with_preset('"attacks.loss"', '"defenses.ldp_gaussian"', '"defenses.ldp_gaussian.epsilon" = 2.0\n', "")
    spec, _ = load_suite(path, preset="smoke")
    assert list(spec.defenses) == ["none"]
    assert spec.published == ()


def test_what_is_kept_leaves_out_its_neighbours_of_the_same_kind_alone(with_preset):
    path = with_preset('drop = ["attacks.loss"]', 'keep = ["attacks.random_*"]')
    spec, _ = load_suite(path, preset="smoke")
    assert list(spec.attacks) == ["random_scores"]
    assert list(spec.defenses) == list(load_suite(path)[0].defenses) == ["none", "ldp_gaussian"]
    assert spec.audit is not None
    assert len(spec.published) == 1


def test_a_star_stands_for_any_letters_and_what_is_dropped_goes_even_if_kept(with_preset):
    path = with_preset('drop = ["attacks.loss"]', 'keep = ["attacks.*"]\ndrop = ["*.loss"]')
    assert list(load_suite(path, preset="smoke")[0].attacks) == ["random_scores"]


def test_a_preset_may_leave_the_audit_out(with_preset):
    path = with_preset('"attacks.loss"', '"audit"')
    assert load_suite(path)[0].audit is not None
    assert load_suite(path, preset="smoke")[0].audit is None


@pytest.mark.simulations
def test_a_run_of_a_preset_can_be_resumed_without_naming_it_again(with_preset, tmp_path):
    run = fedassay.run(with_preset(), preset="smoke", jobs=1, folder=tmp_path / "run", report=False)
    assert len({record.seed for record in run.records if record.role == "utility"}) == 2
    assert relaunch(run.folder).plan.run_id == run.records[0].run_id
    assert "preset='smoke'" in (run.folder / "manifest.json").read_text()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("seeds = 2", '"federations.main.rouns" = 1', "unknown key 'federations.main.rouns'; known here: rounds"),
        ('"attacks.loss"', '"attacks.los"', "no table 'attacks.los'; known: attacks.loss"),
        ('["attacks.loss"]', '"attacks.loss"', "must be a list of tables' names, got 'attacks.loss'"),
        (
            'drop = ["attacks.loss"]',
            'keep = ["attacks.lose"]',
            "keep: the suite has no table 'attacks.lose'; known: attacks.loss",
        ),
        (
            "seeds = 2",
            '"attacks.loss.count" = 3',
            "the preset sets attacks.loss.count, but removes the table attacks.loss that holds it",
        ),
        (
            'drop = ["attacks.loss"]',
            'keep = ["defenses.none"]',
            "but removes the table defenses.ldp_gaussian that holds it",
        ),
        ("seeds = 2", "federations.main.rounds = 1", 'write the whole key in quotes, such as "federations.NAME.FIELD"'),
        ("[presets.smoke]", "[presets.tiny]", "--preset smoke: suite.toml has no preset of this name; known: tiny"),
    ],
)
def test_a_preset_that_is_wrong_is_reported_with_its_line(refusal, old, new, said):
    assert said in refusal(old, new)


def test_a_suite_without_presets_states_so(suite_file):
    with pytest.raises(ConfigError, match="the suite has none"):
        load_suite(str(suite_file()), preset="smoke")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"ldp_gaussian"\nmetric', '"ldp_gausian"\nmetric', "no defense 'ldp_gausian'; known: ldp_gaussian"),
        ('metric = "accuracy"', 'metric = "epsilon"', "(the unit of a claim) must be set"),
        ('metric = "accuracy"', 'metric = "auc"', "set the key attack to the attack"),
        (
            'metric = "accuracy"',
            'attack = "loss"\nmetric = "accuracy"',
            "measures utility, not an attack",
        ),
        ("value = 0.9", "value = -1e300", "must be >= -1000000000000"),
    ],
)
def test_a_published_figure_that_belongs_to_nothing_is_refused(with_preset, old, new, said):
    with pytest.raises(ConfigError) as refused:
        load_suite(with_preset(old, new))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("table", "who"),
    [("[defenses.ldp_gaussian]", "ldp_gaussian"), ("[attacks.loss]", "loss")],
    ids=["defense", "attack"],
)
def test_a_published_figure_of_a_federation_where_it_does_not_run_is_refused(with_preset, table, who):
    elsewhere = '[federations.other]\ndataset = "digits"\nmodel = "logistic"\nclients = 2\nrounds = 1\n'
    elsewhere += 'algorithm = { name = "fedsgd", learning_rate = 1.0 }\n\n'
    changes = ['metric = "accuracy"', 'attack = "loss"\nmetric = "auc"'] if who == "loss" else []
    with pytest.raises(ConfigError) as refused:
        load_suite(with_preset(table, f'{elsewhere}{table}\nfederation = "other"', *changes))
    assert f"row 1: {who} runs only on other" in str(refused.value)


TWO = """

[federations.other]
dataset = "digits"
model = "logistic"
clients = 4
samples = 40
rounds = 1
algorithm = { name = "fedsgd", learning_rate = 1.0 }

[attacks.elsewhere]
part = "loss"
federation = "other"
"""


def refused_only(path, *only, overrides=()):
    with pytest.raises(ConfigError) as refused:
        load_suite(path, only=only, overrides=overrides)
    return str(refused.value).replace(path, "suite.toml")


def test_a_federation_that_is_left_out_although_attacks_need_it_is_named_with_what_to_keep(with_preset):
    path = with_preset(text=TWO)
    missed, remedy = refused_only(path, "federations.main").split(": keep ")
    assert "federation 'other' is left out, and attacks.elsewhere needs it" in missed
    assert remedy == "federations.other too, or of the attacks only attacks.loss, attacks.random_scores"
    for kept in ("attacks.loss", "federations.other"):
        assert load_suite(path, only=("federations.main", kept))
    # The audit needs the main federation, so that a choice of attacks would not be enough.
    missed, remedy = refused_only(path, "federations.other").split(": keep ")
    assert "attacks.loss" in missed
    assert "audit" in missed
    assert remedy == "federations.main too"


def test_changes_are_made_before_a_federation_is_missed_and_their_mistakes_are_named(with_preset):
    path = with_preset(text=TWO)
    assert load_suite(path, only=("federations.main",), overrides=("attacks.elsewhere.federation=main",))
    for change in ("attacks.elsewhere=3", "attacks=3"):
        assert "attacks" in refused_only(path, "federations.main", "attacks.loss", overrides=(change,))
