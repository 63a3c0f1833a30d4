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
