"""The table of foreign situations runs as a script."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.processes
def test_a_row_of_the_table_is_counted():
    script = Path(__file__).parents[2] / "benchmarks" / "foreign_situations"
    command = [sys.executable, script, "--only", "loop half of the n"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "1 broken: 1 found (0 by trials), 0 inconclusive (11), 0 missed (OK)" in printed
