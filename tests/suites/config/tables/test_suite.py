"""What a suite file may say; every refusal names file, line and what is known."""

import pytest
from fedassay.suites.config.part_listing import bundled_suites
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.suite_file import load_suite


@pytest.fixture
def refusal(suite_file):
    """(old, new, ..., overrides) -> what is said of the small suite with these changes, without the folder's name."""

    def read(*changes, overrides=()):
        path = suite_file(*changes)
        with pytest.raises(ConfigError) as refused:
            load_suite(str(path), overrides=overrides)
        return str(refused.value).replace(str(path), "suite.toml")

    return read


def line_of(text, fragment):
    return next(number for number, line in enumerate(text.splitlines(), 1) if fragment in line)


def test_the_small_suite_is_read_as_it_is_written(suite_file):
    spec, _ = load_suite(str(suite_file()))
    assert (spec.name, spec.seeds, spec.alpha) == ("tiny", 1, 0.05)
    assert list(spec.defenses) == ["none", "ldp_gaussian"]
    assert spec.defenses["ldp_gaussian"].model_extra == {"delta": 1e-5, "epsilon": 4.0}
    assert spec.audit.noise_shares == (0.5,)


@pytest.mark.parametrize("name", sorted(bundled_suites()))
def test_every_bundled_suite_is_valid_and_called_as_its_file(name):
    spec, source = load_suite(name)
    assert spec.name == name.removeprefix("papers/")
    assert source.name == f"{name}.toml"
    assert spec.description


@pytest.mark.parametrize(
    ("old", "new", "key", "known"),
    [
        ("seeds = 1", "sedes = 1", "sedes", "seeds"),
        ("rounds = 2", "rounds = 2\nsampels = 40", "federations.main.sampels", "samples"),
        ("batch = 16", "canray = 1", "audit.canray", "canary"),
        ("[defenses.none]", '[defenses.none]\nplan = { lto = "full" }', "defenses.none.plan.lto", "lot"),
    ],
)
def test_an_unknown_key_is_named_with_its_line_and_the_nearest_known_first(refusal, tiny, old, new, key, known):
    line = line_of(tiny.replace(old, new), key.rpartition(".")[2])
    assert refusal(old, new).startswith(f"suite.toml, line {line}: unknown key '{key}'; known here: {known}")


def test_a_misspelt_key_and_the_one_that_it_leaves_missing_are_both_reported(refusal, tiny):
    said = refusal("rounds = 2", "rouns = 2").splitlines()
    table, key = line_of(tiny, "[federations.main]"), line_of(tiny, "rounds = 2")
    assert said[0] == f"suite.toml, line {table}: federations.main.rounds is missing"
    assert said[1].startswith(f"suite.toml, line {key}: unknown key 'federations.main.rouns'; known here: rounds")


OF_MAIN = [
    ('partition = "idi"', "unknown partition 'idi'; known: iid"),
    ('partition = { kind = "dirichlet", alhpa = 1 }', "no option 'alhpa'; it has: alpha"),
    ('partition = { kind = "dirichlet", alpha = -1 }', "alpha must be a number > 0, got -1"),
    ("lot = { poison = 0.1 }", "known: poisson"),
    ("cohort = 7", "federations.main.cohort: sampling must be"),
    ("label_noise = 1.5", "federations.main.label_noise must be <= "),
    ("pixel_noise = -0.1", "federations.main.pixel_noise must be >= 0"),
    ("warm_start = { samples = 0, steps = 1, learning_rate = 0.1 }", "main.warm_start.samples must be >= 1, got 0"),
    ("normalise = { mean = 0.3, std = 0 }", "federations.main.normalise: normalise needs values of std > 0"),
    ('calibrated_on = "x"', "federations.main.calibrated_on: no federation 'x'"),
    (
        'calibrated_on = "main"',
        "federations.main.calibrated_on: federation 'main' takes its calibration from another federation",
    ),
]
OF_AUDIT = [
    ('canary = "dirca"', "audit.canary: unknown canary 'dirca'; known: dirac"),
    ('design = "one_run"', 'audit.design: design "one_run" needs canaries = M'),
    ("canaries = 9", 'audit.canaries: only design = "one_run" plants several canaries'),
    (
        'design = "one_run"\ncanaries = 9\ncanary = "random"',
        "audit.canary: design \"one_run\" plants Dirac canaries, got 'random'",
    ),
    ('federation = "other"', "audit.federation: no federation 'other'; known: main"),
    ("clients = 3", "audit.clients: must be at most 2, the clients of federation 'main', got 3"),
]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"digits"', '"digit"', "federations.main.dataset: unknown data set 'digit'; known: digits"),
        ("fedsgd", "fedsdg", "federations.main.algorithm: unknown algorithm 'fedsdg'; known: fedsgd"),
        ("learning_rate = 0.5", "learning_rate = inf", "federations.main.algorithm.learning_rate must be finite"),
        ("rounds = 2", "rounds = true", "federations.main.rounds must be a whole number"),
        ("alpha = 0.05", "alpha = 1.0", "alpha must be < 1"),
        ("rounds = 2", "rounds = 10000000000000", "federations.main.rounds must be <= 100000, got 10000000000000"),
        ("alpha = 0.05", 'alpha = "0.05"', "alpha must be a number, got '0.05'"),
        ("[audit]", "[[audit]]", "audit must be a table of keys and values, got a list of tables"),
        ("noise_shares = [0.5]", "noise_shares = [0.5, 0.0]", "audit.noise_shares.1 must be >= 0.001, got 0.0"),
        ("[defenses.none]", '[defenses."no ne"]', "defenses.no ne must be 1 to 40 letters, digits, _ or -, got"),
        ("count = 8", 'federation = ["main", "mian"]', "attacks.loss.federation: no federation 'mian'; known: main"),
        ('name = "tiny"', 'name = "tiny"\ngate.margins = { auk = 0.1 }', "for an unknown metric 'auk'; known: auc"),
        ('name = "tiny"', 'name = "tiny"\ngate.margins = { auc = 0 }', "margin of auc must be a number > 0, got 0"),
        *(("rounds = 2", f"rounds = 2\n{line}", says) for line, says in OF_MAIN),
        *(("batch = 16", lines, says) for lines, says in OF_AUDIT),
    ],
)
def test_a_bad_value_is_refused_with_its_field_and_line(refusal, tiny, old, new, says):
    line = line_of(tiny.replace(old, new), new.splitlines()[-1])
    said = refusal(old, new)
    assert said.startswith(f"suite.toml, line {line}: ")
    assert says in said


def test_an_audit_of_a_federation_that_borrows_its_calibration_would_audit_nothing_and_is_refused(refusal):
    borrowing = """[federations.shown]
clients = 1
rounds = 1
algorithm = { name = "fedsgd", learning_rate = 1.0 }
calibrated_on = "main"

[audit]
federation = "shown"
"""
    assert "audit.federation: federation 'shown' takes its calibration from another federation" in refusal(
        "[audit]\n", borrowing
    )


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("federations.main.rouns=3", "--set federations.main.rouns: unknown key 'federations.main.rouns'"),
        ("audit={ replicsa = 3 }", "--set audit: unknown key 'audit.replicsa'; known here: replicas"),
        ("seeds", "--set must have the form key.sub=value, got 'seeds'"),
        (
            "mutants.power=.5",
            "--set mutants.power: the suite has no [mutants] table to change, and creating",
        ),
        (
            "audit.clients=99",
            "--set audit.clients: audit.clients: must be at most 2, the clients of federation 'main', got 99",
        ),
    ],
)
def test_a_bad_override_is_blamed_on_the_command_line(refusal, override, says):
    assert refusal(overrides=(override,)).startswith(says)


def test_a_good_override_changes_the_suite(suite_file):
    changes = ("seeds=4", "defenses.ldp_gaussian.epsilon=1", "federations.main.lot={ poisson = 0.5 }", "name=other")
    spec, source = load_suite(str(suite_file()), overrides=changes)
    assert (spec.seeds, spec.name) == (4, "other")
    assert spec.defenses["ldp_gaussian"].model_extra == {"delta": 1e-5, "epsilon": 1}
    assert spec.federations["main"].lot == {"poisson": 0.5}
    assert source.overrides == ("seeds", "defenses.ldp_gaussian.epsilon", "federations.main.lot", "name")


def test_a_mutants_table_may_be_asked_for_on_the_command_line(suite_file):
    assert load_suite(str(suite_file()), overrides=("mutants={ only = ['fixed_lots'] }",))[0].mutants is not None


def test_a_missing_suite_lists_the_bundled_ones_nearest_first():
    with pytest.raises(ConfigError, match=r"no suite 'quik': it is neither a file nor a bundled suite \(quick"):
        load_suite("quik")


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "x.toml").write_bytes(b'name = "\xff\xfe"\n')
    with pytest.raises(ConfigError, match=r"x\.toml: not a TOML file: it is not UTF-8 text"):
        load_suite(str(tmp_path / "x.toml"))


def test_a_value_of_an_option_of_its_own_is_refused_under_the_options_name():
    with pytest.raises(ConfigError, match=r"^--device: unknown device 'tpu'; known: cpu or cuda$"):
        load_suite("quick", options=("device=tpu",))


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_an_empty_file_lacks_everything_that_a_suite_must_say(tmp_path, text):
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_suite(str(tmp_path / "x.toml"))
    said = [line.rpartition(": ")[2] for line in str(refused.value).splitlines()]
    assert said == ["name is missing", "defenses is missing"]


def test_a_byte_order_mark_and_windows_line_ends_are_read_and_keep_the_line_numbers(tmp_path, tiny):
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xef\xbb\xbf" + tiny.replace("\n", "\r\n").encode())
    assert load_suite(str(path))[0].name == "tiny"
    path.write_bytes(b"\xef\xbb\xbf" + tiny.replace("\n", "\r\n").replace("seeds = 1", "sedes = 1").encode())
    with pytest.raises(ConfigError, match=f"line {line_of(tiny, 'seeds = 1')}: unknown key 'sedes'"):
        load_suite(str(path))
