"""A suite file's text: where a key stands, what ``--set``, presets and ``only`` change, and how mistakes are named."""

import tomllib

import fedassay
import pytest
from fedassay.suites.config.source import ConfigError, Source, apply_override
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.execution.run import relaunch
from hypothesis import given
from hypothesis import strategies as st

TEXT = """\
name = "x"
# seeds = 9

[federations.main]
rounds = 2
algorithm = { name = "fedsgd" }

[defenses."quoted"]
plan.cohort = "full"
  [audit]  # indented
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("name",), 1),
        (("federations", "main", "rounds"), 5),
        (("federations", "main", "algorithm", "name"), 6),
        (("federations", "main", "absent"), 4),
        (("defenses", "quoted", "plan", "cohort"), 9),
        (("audit", "replicas"), 10),
    ],
)
def test_a_path_is_found_on_the_line_of_its_deepest_part(path, line):
    assert Source("f.toml", TEXT).where(path) == f"f.toml, line {line}"


@pytest.mark.parametrize("path", [("seeds",), ("federations",), ()])
def test_what_stands_nowhere_has_the_file_alone(path):
    assert Source("f.toml", TEXT).where(path) == "f.toml"


def test_a_line_is_counted_by_newlines_alone():
    text = 'name = "a\u2028b\x85c"\nseeds = 1\n'
    assert tomllib.loads(text)["seeds"] == 1
    assert Source("f.toml", text).where(("seeds",)) == "f.toml, line 2"


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ("audit.replicas", ("audit", "replicas")),
        ("audit", ("audit", "replicas")),
        ("federations.main.rounds", ("federations", "main", "rounds")),
        ("a.b", ("a",)),
    ],
)
def test_a_fault_that_an_override_brought_is_not_blamed_on_the_file(override, path):
    assert Source("f.toml", TEXT, (override,)).where(path) == f"--set {override}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = 1\nb = = 2\n", "line 2"),
        ("a = 1\n[b\nc = 1\n", "line 2"),
        ("a = 1\n\n[b", "line 3"),
        ('a = 1\nb = """\n\n', "line 2"),
    ],
)
def test_what_is_no_toml_is_refused_with_file_and_line(text, line):
    with pytest.raises(ConfigError, match=r"^f\.toml: not a TOML file: ") as refused:
        Source("f.toml", text).parse()
    assert line in str(refused.value)


def test_an_override_reads_toml_and_else_plain_text():
    tree = {}
    for assignment in ("a.b=3", "a.c = 0.5", "a.d=[1, 2]", "e={ poisson = 0.1 }", "f=full", "g=a=b", "h="):
        apply_override(tree, assignment)
    assert tree == {
        "a": {"b": 3, "c": 0.5, "d": [1, 2]},
        "e": {"poisson": 0.1},
        "f": "full",
        "g": "a=b",
        "h": "",
    }


@pytest.mark.parametrize("assignment", ["", "a", "=3", "a.=3", ".a=3", "a..b=3", " = "])
def test_an_override_without_a_key_is_refused(assignment):
    with pytest.raises(ConfigError, match=r"--set must have the form key\.sub=value"):
        apply_override({}, assignment)


@pytest.mark.parametrize("assignment", ["name.x=1", "list.x=1", "name.x.y=1"])
def test_an_override_through_what_is_no_table_is_refused(assignment):
    with pytest.raises(ConfigError, match="is not a table"):
        apply_override({"name": "x", "list": [1]}, assignment)


@given(st.text(), st.text())
def test_no_override_brings_anything_but_a_value_or_a_config_error(key, value):
    tree = {"name": "x", "a": {"b": 1}}
    try:
        placed = apply_override(tree, f"{key}={value}")
    except ConfigError:
        assert tree["name"] == "x"
        return
    for part in placed.split("."):
        tree = tree[part]


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
