"""Collect the software and hardware of a run, and measure its CPU seconds."""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = (
    "fedassay",
    "torch",
    "torchvision",
    "numpy",
    "scipy",
    "scikit-learn",
    "scikit-image",
    "dp-accounting",
    "joblib",
)


def versions() -> dict[str, str]:
    """Return the versions of the installed packages that can change a result."""
    return {name: found for name in PACKAGES if (found := _version_of(name))}


def hardware() -> dict[str, Any]:
    """Return the processor, the cores that this process may use, and the memory in GB."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    return {"cpu": platform.machine(), "cores": cores(), "memory_gb": round(pages / 2**30, 1)}


def peak_memory() -> int:
    """Return the largest amount of memory, in bytes, that this process has used so far."""
    try:
        import resource
    except ImportError:  # Windows.
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    # Linux counts in kilobytes, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 2**10)


def cores() -> int:
    """Return the number of cores that this process may use."""
    # Not os.cpu_count(): a container may use fewer cores than the machine has.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> str:
    """Return a text that states the number of threads per process set by the environment variable ``OMP_NUM_THREADS``;
    if it is not 1, the text advises to set it to 1.
    """
    setting = os.environ.get("OMP_NUM_THREADS")
    if setting == "1":
        return "OMP_NUM_THREADS=1: one thread per process, as recommended"
    words = "OMP_NUM_THREADS is not set" if setting is None else f"OMP_NUM_THREADS={setting}"
    return f"{words}: each process of a run uses one torch thread; set it to 1 so that numpy does the same"


def accelerator() -> str:
    """Return the name of the GPU that ``--device cuda`` would use."""
    import torch  # Lazy: writing the manifest does not need it.

    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name(0)}, for --device cuda"
    return f"PyTorch {torch.__version__} finds none; attacks that search for images run on the CPU"


def git() -> dict[str, Any] | None:
    """Return the commit of the current folder's repository and whether changes are uncommitted; None without a
    repository.
    """
    # The folder's own configuration may name a program that watches files, which git would run.
    commit, status = (_output_of("git", "-c", "core.fsmonitor=false", *words) for words in _GIT)
    return {"commit": commit, "dirty": bool(status)} if commit else None


_GIT = (("rev-parse", "HEAD"), ("status", "--porcelain"))


@cache
def _version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _output_of(*words: str) -> str:
    """What a command prints; empty where it fails: a manifest must be written even where there is no git."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@dataclass
class Cost:
    """A counter of CPU seconds, which counts from its own creation. With ``since``, the counter starts at the moment
    when this process had used ``since`` CPU seconds (0.0: at the start of the process).
    """

    since: float = field(default_factory=time.process_time)
    _workers: dict[Hashable, float] = field(default_factory=dict)

    def add_worker(self, worker: Hashable, seconds: float) -> None:
        """Record the CPU ``seconds`` that a worker process, given by a name of its own, has used since its start."""
        # Totals may arrive out of order, because workers report whenever a job ends.
        self._workers[worker] = max(seconds, self._workers.get(worker, 0.0))

    def seconds(self) -> float:
        """Return the CPU seconds that the run has used up to now."""
        return time.process_time() - self.since + sum(self._workers.values())
