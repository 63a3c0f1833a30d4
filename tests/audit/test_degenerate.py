"""Inputs at the edge of what is a number: a finite answer or a clear error, never NaN, infinity or an endless loop."""

import math
import warnings

import numpy as np
import pytest
from fedassay.audit.binomial import upper_bound
from fedassay.audit.estimators.pairwise_event import EventCounts, pairwise_event
from fedassay.audit.evidence import Design, Guesses

LEVELS = {"delta": 1e-5, "alpha": 0.05}


@pytest.fixture(autouse=True)
def _no_warning_is_swallowed():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_counts_are_whole_numbers(setting_of):
    one_run_setting = setting_of(design=Design.ONE_RUN)
    for counts, name in [((1.5, 2, 3), "right"), ((1, 2.5, 3), "made"), ((1, 2, 3.5), "canaries")]:
        with pytest.raises(ValueError, match=f"{name} must be a whole number, got"):
            Guesses(*counts, one_run_setting)
    assert isinstance(Guesses(np.float32(1), np.int64(2), 3.0, one_run_setting).right, int)
    for counts in ({"hits_in": 1.5}, {"n1": 2.5}, {"n0": math.inf}):
        with pytest.raises(ValueError, match="must be a whole number, got"):
            EventCounts(**({"hits_in": 1, "n1": 2, "hits_out": 0, "n0": 2, "setting": setting_of()} | counts))
    counts = EventCounts(hits_in=np.int64(9), n1=np.float64(9), hits_out=0, n0=9, setting=setting_of())
    assert pairwise_event(counts, **LEVELS).n1 == 9


def test_the_upper_bound_is_the_trivial_one_where_its_inverse_does_not_converge():
    # betainccinv gives NaN for some of these; 1 holds always.
    for alpha in (1e-280, 1e-300, 1e-305):
        bounds = upper_bound(np.arange(501), 500, alpha)
        assert np.all((bounds > np.arange(501) / 500) | (bounds == 1))
        assert np.all(bounds <= 1)
