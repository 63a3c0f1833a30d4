"""The command attack: what it prints about a recording, its report, and its exit codes."""

from recorded_training import record


def test_a_recording_is_attacked_and_its_report_written(say, tmp_path):
    record(tmp_path / "recording", truth=True)
    told = ["--attack", "analytic_linear", "--attack", "equal_counts", "-j", 1, "-o", "out"]
    done = say("attack", "recording", "--model", "mlp", "--data", "digits", *told)
    assert done.exit_code == 0, done.output
    assert "adversary: the server that observes individual updates" in done.stdout
    assert "attributes: not attacked" in done.stdout
    assert "analytic_linear" in done.stdout.partition("Attacks on federation recorded")[2]
    assert "messages recorded from a training" in (tmp_path / "out" / "report.html").read_text()
    again = say("attack", "recording", "--model", "mlp", "--data", "digits", *told)
    assert again.exit_code == 2


def test_constants_of_the_clients_images_are_part_of_the_model(say, tmp_path):
    record(tmp_path / "recording")
    told = ["--attack", "idlg", "-j", 1, "--model", "mlp", "--data", "digits"]
    assert "differ from those of plain steps by 0" in say("attack", "recording", *told, "-o", "right").stdout
    scaled = say("attack", "recording", *told, "-o", "wrong", "--normalise", 0.5, 0.1)
    assert "so an attack that fails shows little" in scaled.stdout


def test_mistakes_are_named_with_exit_code_2(say, tmp_path):
    (tmp_path / "empty").mkdir()
    record(tmp_path / "recording")
    record(tmp_path / "cut")
    (tmp_path / "cut" / "round000000.npz").write_bytes(b"PK")
    for words, error in (
        (["cut", "--model", "mlp", "--data", "digits"], "it was changed, damaged or cut off"),
        (["none", "--model", "mlp", "--data", "digits"], "is no recording of fedassay"),
        (["empty", "--model", "mlp", "--data", "digits"], "is no recording of fedassay"),
        (["recording", "--model", "mpl", "--data", "digits"], "mlp"),
        (["recording", "--model", "mlp", "--data", "none.npz"], "none.npz"),
        (["recording", "--model", "mlp", "--data", "{ part = 1"], "--data"),
        (["recording", "--model", "mine.py:net", "--data", "digits"], "mine.py"),
        (["recording", "--model", "mlp", "--data", "digits", "--attack", "loss", "--column", "x"], "infers a column"),
        (["recording", "--model", "mlp", "--data", "digits", "--attack", "rmia"], "trains federations"),
    ):
        done = say("attack", *words, "-j", 1)
        assert (done.exit_code, error in done.output) == (2, True), done.output
