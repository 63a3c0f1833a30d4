"""A run on a system without fcntl, resource and signal masks, as on Windows: locked, measured, finished."""

import subprocess
import sys

import pytest

CODE = """
import signal, sys, types

def memory():
    return types.SimpleNamespace(peak_wset=3 * 2**20)

for name in ("fcntl", "resource"):
    sys.modules[name] = None
sys.modules["psutil"] = types.SimpleNamespace(Process=lambda: types.SimpleNamespace(memory_info=memory))
del signal.pthread_sigmask

import fedassay
from fedassay.suites.config.source import ConfigError
from fedassay.suites.results.store import Store

run = fedassay.run(sys.argv[1], jobs=1, folder=sys.argv[2], report=False)
store = Store(run.folder)
with store.locked():
    try:
        fedassay.resume(run.folder, jobs=1)
    except ConfigError as error:
        print(error)
print(run.verdict.exit_code, {record.peak_mem_mb for record in run.records if record.peak_mem_mb})
"""


@pytest.mark.processes
def test_a_run_needs_no_unix_module(suite_file, tmp_path):
    words = [sys.executable, "-W", "ignore", "-c", CODE, str(suite_file()), str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    refused, finished = done.stdout.splitlines()
    assert refused.startswith("another process is writing")
    assert finished == "0 {3.0}"
    assert not (tmp_path / "run" / ".lock").exists()
