"""Values of leaves beside their digests: written once, read back, and how far two of them lie apart."""

import math

import numpy as np
import pytest

from parity.reference.planned import LeafEvent, RunEvidence, judge
from parity.state import TrainingState, keep_values, leaf_digests, measure_arrays, measure_kept
from tests.support.small import record


def kept(home, **arrays):
    """Keep the values of a state and return the texts of its digests."""
    state = TrainingState(arrays={name.replace("__", "."): np.asarray(value) for name, value in arrays.items()})
    texts = leaf_digests(state, schema=1)
    keep_values(state, texts, home)
    return texts


@pytest.mark.parametrize(
    ("expected", "found", "size"),
    [
        ([1.0, 2.0, 4.0], [1.0, 2.5, 3.0], (3, 2, 1.0, 0.25)),
        ([0.0, 1.0], [1.0, 1.0], (2, 1, 1.0, math.inf)),
        ([0.0], [-0.0], (1, 1, 0.0, 0.0)),
        ([math.nan], [math.nan], (1, 0, 0.0, 0.0)),
        ([math.nan], [1.0], (1, 1, math.nan, math.nan)),
        ([math.inf], [1.0], (1, 1, math.inf, math.nan)),
        ([], [], (0, 0, 0.0, 0.0)),
    ],
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_size_of_a_difference(expected, found, size, dtype):
    assert measure_arrays(np.array(expected, dtype), np.array(found, dtype)) == pytest.approx(size, nan_ok=True)


def test_a_leaf_that_does_not_change_is_written_once(tmp_path):
    kept(tmp_path, a=[1.0, 2.0], b=[3.0])
    assert len(list(tmp_path.iterdir())) == 2
    kept(tmp_path, a=[1.0, 2.0], b=[4.0])
    assert len(list(tmp_path.iterdir())) == 3


def test_values_are_read_back_by_their_digests(tmp_path):
    old, new = kept(tmp_path / "x", a=[1.0, 2.0]), kept(tmp_path / "y", a=[1.0, 5.0])
    assert measure_kept((tmp_path / "x", old["a"]), (tmp_path / "y", new["a"])) == (2, 1, 3.0, 1.5)


def test_what_was_not_kept_cut_off_or_of_another_shape_has_no_size(tmp_path, monkeypatch):
    texts = kept(tmp_path, a=[1.0], b=[1.0, 2.0])
    assert measure_kept((tmp_path, texts["a"]), (tmp_path, texts["b"])) is None
    assert measure_kept((tmp_path, texts["a"]), (tmp_path, "float64[1] other")) is None
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:-4])
    assert measure_kept((tmp_path, texts["a"]), (tmp_path, texts["a"])) is None
    monkeypatch.setattr("parity.state.leaf_values.MOST_BYTES", 8)
    kept(tmp_path / "small", a=[1.0], b=[1.0, 2.0])
    assert len(list((tmp_path / "small").iterdir())) == 1, "the larger one is left out"


def test_a_disk_that_takes_nothing_does_not_end_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    kept(tmp_path / "file" / "below", a=[1.0])


def test_the_judge_names_the_sizes_of_the_first_cause_the_largest_first(tmp_path):
    saved = {"model__params__w": [1.0, 2.0], "optimizer__first_moment__w": [4.0, 8.0]}
    lost = {"model__params__w": [1.0, 2.5], "optimizer__first_moment__w": [0.0, 0.0]}
    events = [
        LeafEvent(event=kind, attempt=attempt, step=1, leaves=kept(tmp_path, **values), values=tmp_path)
        for kind, attempt, values in (("saving", 0, saved), ("saved", 0, saved), ("restored", 1, lost))
    ]
    rows = [record(1), record(2)]
    whole = RunEvidence(records=rows, validations=[], resumed_from=[None], events=events[:2])
    resumed = RunEvidence(
        records=[rows[0], rows[1]._replace(attempt=1)], validations=[], resumed_from=[None, 1], events=events
    )
    found = judge(whole, resumed, [None, 1]).leaves
    assert [(leaf.leaf, leaf.elements, leaf.differing, leaf.max_abs, leaf.max_rel) for leaf in found] == [
        ("optimizer.first_moment.w", 2, 2, 8.0, 1.0),
        ("model.params.w", 2, 1, 0.5, 0.25),
    ]
    assert {leaf.where for leaf in found} == {"restored at step 1 is not what was saved"}
