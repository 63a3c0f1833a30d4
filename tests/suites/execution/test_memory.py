"""Memory: a process that keeps what it frees takes no page twice."""

import platform
import subprocess
import sys

import pytest

COUNTED = """
import resource
import numpy as np
from fedassay.suites.execution.backend import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(1_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

usual = faults()
keep_freed_memory()
faults()
print(usual, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_what_was_freed_is_taken_again_without_a_page_fault():
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True)
    usual, kept = map(int, done.stdout.split())
    # 20 arrays of 8 MB are 39,000 pages, or 160 of 2 MiB where the system gives huge ones.
    assert usual > 50
    assert kept < usual / 5


def test_what_the_imports_made_is_left_out_of_searches_for_garbage():
    code = (
        "import gc\nfrom fedassay.suites.execution.backend import leave_imports_out_of_collections as leave\n"
        "before = len(gc.get_objects())\nleave()\nprint(before, len(gc.get_objects()), gc.get_freeze_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, searched, frozen = map(int, done.stdout.split())
    assert searched < before / 10
    assert frozen > before / 2
