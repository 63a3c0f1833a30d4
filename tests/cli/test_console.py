"""A reader that closes the pipe ends the printing; the command goes on and keeps its exit code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = "from fedassay.__main__ import main; main()"
pytestmark = pytest.mark.processes


def without_reader(folder, *words, errors=subprocess.PIPE):
    """Run the command with its output in a pipe that has no reader; return its exit code and its printed errors."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", CODE, *map(str, words)],
            cwd=folder,
            stdout=writing,
            stderr=errors,
            text=True,
            check=False,
            timeout=120,
        )
    finally:
        os.close(writing)
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", [["list", "defenses"], ["schema", "result"], ["doctor"], ["--help"]])
def test_a_command_ends_quietly_when_its_reader_has_gone(tmp_path, words):
    assert without_reader(tmp_path, *words) == (0, "")


def test_a_run_goes_on_when_its_reader_has_gone(suite_file, tmp_path):
    assert without_reader(tmp_path, "run", suite_file(), "-o", "out", "-j", 1) == (0, "")
    assert (tmp_path / "out" / "report.html").is_file()
    assert without_reader(tmp_path, "gate", "out") == (0, "")


def test_an_output_that_cannot_be_written_is_named(tmp_path):
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", CODE, "list", "suites"]
        done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    told = "INCOMPLETE: standard output cannot be read or written: no space left on device\n"
    assert done.stderr.startswith(told)


def test_an_error_that_has_no_reader_keeps_its_exit_code(tmp_path):
    assert without_reader(tmp_path, "list", "nothing", errors=subprocess.STDOUT)[0] == 2
