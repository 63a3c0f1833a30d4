"""A signal handler of the program that runs a suite may raise: that ends the run, and no part has failed."""

import functools
import signal

import fedassay
import pytest
from fedassay.suites.attacking.finished_cells import raised_by_signal
from fedassay.suites.results.store import Store

BODY = """import signal
        if context.round == 1 and not Path("go").exists(): signal.raise_signal(signal.SIGUSR1)"""


class Stopped(Exception):
    pass


def leaving(number, frame):
    raise SystemExit(7)


def stopping(number, frame):
    raise Stopped


@pytest.fixture
def handle():
    """(handler) -> it is that of SIGUSR1 until the end of the test."""
    before = signal.getsignal(signal.SIGUSR1)
    yield functools.partial(signal.signal, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.simulations
@pytest.mark.parametrize(("handler", "error"), [(leaving, SystemExit), (stopping, Stopped)])
def test_what_a_handler_raises_ends_the_run_which_goes_on_later(
    assay, suite_file, own_defense, tmp_path, monkeypatch, handle, handler, error
):
    monkeypatch.chdir(tmp_path)
    module = own_defense(BODY)
    handle(handler)
    with pytest.raises(error):
        assay(suite_file(), defenses=[f"{module}:Mine"], folder="run")
    kept = Store(tmp_path / "run").finished()
    (tmp_path / "go").touch()
    run = fedassay.resume("run", jobs=1, report=False)
    assert not any(row.status == "failed" for row in run.records)
    assert kept < {row.cell_id for row in run.records}


def test_an_exception_of_another_function_is_not_of_a_handler(handle):
    handle(leaving)
    for function, found in ((leaving, True), (stopping, False)):
        with pytest.raises((SystemExit, Stopped)) as raised:
            function(0, None)
        assert raised_by_signal(raised.value) is found
