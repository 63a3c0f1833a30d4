"""Environment: what a run was made with, for its manifest and for ``fedassay doctor``."""

import os
import platform
import subprocess
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
    """Versions of the packages that can change a number."""
    return {name: found for name in PACKAGES if (found := _version(name))}


def hardware() -> dict[str, Any]:
    """Processor, cores that this process may use, memory in GB."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    return {"cpu": platform.machine(), "cores": cores(), "memory_gb": round(pages / 2**30, 1)}


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> str:
    """How many threads a process computes with here, and what it takes for one."""
    told = os.environ.get("OMP_NUM_THREADS")
    if told == "1":
        return "OMP_NUM_THREADS=1: one a process, as it should be"
    words = "OMP_NUM_THREADS is not set" if told is None else f"OMP_NUM_THREADS={told}"
    return f"{words}: a run's processes compute with one torch thread each; set it to 1 for numpy's sake too"


def accelerator() -> str:
    """The GPU that ``--device cuda`` would search on."""
    import torch  # Lazy: the manifest does without.

    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name(0)}, for --device cuda"
    return f"none that PyTorch {torch.__version__} sees; attacks search on the CPU"


def git() -> dict[str, Any] | None:
    """Commit and dirtiness of the working folder, or None outside a repository."""
    commit = _ask("git", "rev-parse", "HEAD")
    return {"commit": commit, "dirty": bool(_ask("git", "status", "--porcelain"))} if commit else None


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _ask(*words: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
