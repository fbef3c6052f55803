"""Values exactly at a limit: range searches, significance, the null check, overflows and costs of trellis paths."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import topsign as ts
from topsign.index.significance import NullCheck
from topsign.search.engine import Hits
from topsign.store import segments
from topsign.theory.detection import RocCurve

N_FEATURES = 64

pytestmark = [pytest.mark.core, pytest.mark.filterwarnings("ignore::topsign.CalibrationWarning")]


def make(kind, metric, rng, n_entries=120):
    options = {"n_features": N_FEATURES, "metric": metric, "random_state": 7}
    if kind == "trellis":
        index = ts.Index(**options, n_bytes=8, basis="hadamard", center=False)
    else:
        index = ts.Index(
            family=kind, **options, **({"n_bits": 16} if kind == "adaptive" else {"n_bytes": N_FEATURES // 8})
        )
    index.add(rng.standard_normal((n_entries, N_FEATURES)) * rng.uniform(0.5, 2, (n_entries, 1)))
    return index


@pytest.mark.parametrize("kind", ["adaptive", "grouped", "sign", "trellis"])
@pytest.mark.parametrize("metric", ["correlation", "inner_product"])
def test_an_entry_at_the_threshold_is_found(kind, metric, rng):
    """Kernels compare unrounded values, but the reported score decides."""
    index = make(kind, metric, rng)
    queries = rng.standard_normal((8, N_FEATURES)) * rng.uniform(0.5, 2, (8, 1))
    found = index.search(queries, k=120)
    for query, ids, scores in zip(queries, found.ids, found.scores, strict=True):
        for rank in range(0, 120, 3):
            matches = index.within(query, threshold=float(scores[rank]))
            assert_array_equal(matches.ids, ids[scores >= scores[rank]])


@pytest.mark.parametrize("kind", ["adaptive", "grouped", "sign", "trellis"])
@pytest.mark.parametrize("metric", ["correlation", "inner_product"])
def test_an_entry_at_the_level_is_found(kind, metric, rng):
    """Kernels use a bound slightly below the level, but the reported p-value decides."""
    index = make(kind, metric, rng)
    queries = rng.standard_normal((60, N_FEATURES))
    found = index.search(queries, k=120)
    for query, p_values, ids in zip(queries, found.p_values, found.ids, strict=True):
        for rank in range(5):
            level = p_values[rank] * (1 + 1e-9)
            false_alarm = -np.expm1(120 * np.log1p(-level))
            if false_alarm < 0.9:  # closer to 1, the level is lost to rounding
                matches = index.within(query, false_alarm=float(false_alarm), force=True)
                assert_array_equal(matches.ids, ids[p_values <= level])


def test_overflows_are_filled_in_the_order_of_ids(rng, monkeypatch):
    monkeypatch.setattr(segments, "MERGED_ENTRIES", 2)
    index = ts.Index(N_FEATURES, family="sign", n_bytes=N_FEATURES // 8, random_state=7)
    signals = rng.standard_normal((6, N_FEATURES))
    for ids in ([8, 9], [5, 6], [1, 2]):
        index.add(signals[:2], ids=ids)
    snapshot = index._entries().snapshot
    assert len(snapshot.segments) > 1
    row = int(snapshot.locate(np.array([6]))[0])
    hits = Hits.ranked(snapshot, np.array([[row, -1, -1, -1]]), np.array([[1, 0, 0, 0]], np.float32))
    assert hits.ids.tolist() == [6, 1, 2, 5]
    assert hits.values.tolist() == [1, -np.inf, -np.inf, -np.inf]


def test_ten_times_the_nominal_share_is_too_many():
    assert NullCheck(0.010, 8192).trusted
    assert not NullCheck(0.0101, 8192).trusted
    assert not NullCheck(0.0101, 2000).trusted
    assert NullCheck(1.0, 1999).trusted  # too few pairs to judge


def test_rescoring_needs_a_row_for_the_largest_id(rng):
    index = make("adaptive", "correlation", rng)
    signals = rng.standard_normal((120, N_FEATURES))
    assert index.search(signals[:1], k=120, rescore=signals).ids.shape == (1, 120)
    with pytest.raises(ValueError, match="got 119 rows and id 119"):
        index.search(signals[:1], k=120, rescore=signals[:119])


@pytest.mark.parametrize("level", [0, 1])
def test_detection_has_no_value_at_certain_levels(level):
    def detection(false_alarm):
        raise AssertionError("must not be computed")

    curve = RocCurve(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 0.5, 0.5, detection)
    with pytest.raises(ValueError, match="false_alarm must lie strictly between 0 and 1"):
        curve.detection_at([level])
