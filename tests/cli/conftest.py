"""Commands and pytest in this process, and each of them once in a process of its own."""

import contextlib
import io
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import fedassay
import pytest

PLUGIN = "fedassay.cli.pytest_plugin"


@pytest.fixture
def inner_pytest(monkeypatch):
    """(folder, words) -> exit code and output of pytest in that folder, in this process and with this plugin alone.

    A process of its own would load torch and all the rest again: seconds for each call.
    """

    def run(folder, *words):
        out, before = io.StringIO(), list(sys.path)
        with monkeypatch.context() as patched:
            patched.chdir(folder)
            patched.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
            # As in a worker of pytest-xdist: a gate that is given no number of jobs runs in this process.
            patched.setenv("PYTEST_XDIST_WORKER", "gw0")
            patched.delenv("PYTEST_ADDOPTS", raising=False)
            patched.setattr(sys, "path", before)
            options = ["-p", PLUGIN, "-p", "no:cacheprovider", "-p", "no:faulthandler", f"--rootdir={folder}"]
            basetemp = [] if any("basetemp" in word for word in words) else [f"--basetemp={folder}.tmp"]
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                code = pytest.main([*options, *basetemp, *words])
        for name, module in list(sys.modules.items()):
            if Path(getattr(module, "__file__", None) or "/").is_relative_to(folder):
                del sys.modules[name]
        return int(code), out.getvalue()

    return run


@pytest.fixture
def python_m():
    """(folder, module, words) -> exit code and output of ``python -m module words`` in that folder."""
    installed = any(point.value == PLUGIN for point in entry_points(group="pytest11"))

    def run(folder, module, *words):
        plugin = ["-p", "no:cacheprovider", *([] if installed else ["-p", PLUGIN])] if module == "pytest" else []
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
        done = subprocess.run(
            [sys.executable, "-m", module, *plugin, *words],
            cwd=folder,
            env=environment | {"PYTHONPATH": str(Path(fedassay.__file__).parents[1])},
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )
        return done.returncode, done.stdout + done.stderr

    return run
