"""Files that hold equal values in other bytes: pickles whose shared parts were written another way, joblib, torch."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch

import parity
from parity.capture import Walk
from parity.checks.running.decoded import contents
from parity.formats import read_joblib

X = np.random.default_rng(0).normal(size=(12, 20, 6))


def of_edges(*edges: Any) -> list[Any]:
    return [set(edges), frozenset(edges), {(edge, "a") for edge in edges}, dict.fromkeys(edges, 1)]


def test_edges_by_their_ends_are_the_same_in_a_file_whichever_end_came_first(tmp_path: Path) -> None:
    ends = [(0, 8), (1, 9), (3, 11)]
    for name, held in (
        ("a", of_edges(*map(frozenset, ends))),
        ("b", of_edges(*(frozenset(reversed(one)) for one in ends))),
        ("c", of_edges(*map(frozenset, [(0, 8), (1, 9), (3, 12)]))),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "edges.pkl").write_bytes(pickle.dumps(held))
    first, second, other = (contents(tmp_path / name, [], []) for name in "abc")
    assert (tmp_path / "a" / "edges.pkl").read_bytes() != (tmp_path / "b" / "edges.pkl").read_bytes()
    assert first == second != other


@pytest.mark.parametrize("text", ["PK,loss\n3,0.5\n", "x^2 + 3\n"])
def test_a_text_that_begins_as_an_archive_does_is_one_all_the_same(tmp_path: Path, text: str) -> None:
    (tmp_path / "notes").write_text(text)
    assert {leaf.kind for leaf in contents(tmp_path, [], []).values()} == {"line", "number"}


def estimates(folder: Path, lost: str = "", compress: int = 0) -> Iterator[int]:
    """Fit an estimator of scikit-learn in parts."""
    from sklearn.linear_model import SGDClassifier  # three seconds of every process that collects tests

    model: Any = SGDClassifier(random_state=0, average=True)
    start, file = 0, folder / "model.joblib"
    if file.exists():
        model, start = joblib.load(file)
        if lost:
            setattr(model, lost, getattr(model, lost) * 0.5)
    for step in range(start, 12):
        yield step
        model.partial_fit(X[step], (X[step, :, 0] > 0).astype(int), classes=[0, 1])
        if step % 4 == 3:
            joblib.dump((model, step + 1), file, compress=compress)


def counts(folder: Path, lost: str = "") -> Iterator[int]:
    """Keep running statistics beside a tensor: NumPy's arrays and a number of NumPy in a file of torch."""
    state: dict[str, Any] = {"w": torch.zeros(3), "mean": np.zeros(2), "best": np.float64(0.0)}
    start, file = 0, folder / "state.pt"
    if file.exists():
        state, start = torch.load(file, weights_only=False)
        state |= {lost: np.zeros(2)} if lost else {}
    for step in range(start, 12):
        yield step
        state["w"] = state["w"] + 0.5
        state["mean"] = state["mean"] * 0.5 + X[step, 0, :2]
        state["best"] = np.float64(max(state["best"], X[step, 0, 0]))
        if step % 4 == 3:
            torch.save((state, step + 1), file)


def verdict(train: Any, **options: Any) -> str:
    return parity.resumes(train, steps=12, stop_at=9, mode="inline", scenarios="kill", options=options).verdict


@pytest.mark.parametrize(("lost", "expected"), [("", "holds"), ("t_", "broken"), ("standard_coef_", "broken")])
@pytest.mark.parametrize("compress", [0, 3])
def test_an_estimator_is_compared_by_what_its_file_holds(lost: str, expected: str, compress: int) -> None:
    assert verdict(estimates, lost=lost, compress=compress) == expected


@pytest.mark.parametrize(("lost", "expected"), [("", "holds"), ("mean", "broken")])
def test_a_file_of_torch_with_numbers_of_numpy_is_compared_by_what_it_holds(lost: str, expected: str) -> None:
    assert verdict(counts, lost=lost) == expected


@pytest.mark.parametrize("dtype", ["float32", ">i4", "bool", "complex64", "object"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_joblib_are_read(tmp_path: Path, dtype: str, order: Any) -> None:
    array = np.array([[0, 1, 2], [3, 4, 0]], order=order).astype(dtype)
    joblib.dump({"a": array, "n": 3}, tmp_path / "a")
    found = read_joblib((tmp_path / "a").read_bytes(), "a")
    assert found["n"] == 3
    if dtype != "object":
        data = np.frombuffer(found["a"]["bytes"], found["a"]["dtype"])
        assert (data.reshape(array.shape, order=found["a"]["order"]) == array).all()
    joblib.dump({"a": np.roll(array, 1), "n": 3}, tmp_path / "b")
    assert repr(read_joblib((tmp_path / "b").read_bytes(), "b")) != repr(found)


def test_a_file_of_joblib_that_is_cut_off_is_none(tmp_path: Path) -> None:
    joblib.dump(np.zeros(100), tmp_path / "a")
    data = (tmp_path / "a").read_bytes()
    with pytest.raises(parity.errors.CheckpointError, match=r"cut off|no end|no pickle"):
        read_joblib(data[:-200], "a")
    assert pickle.loads(pickle.dumps(3)) == read_joblib(pickle.dumps(3), "plain")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "bool", "int64", "complex64", "float8_e4m3fn"])
def test_a_pickled_tensor_is_compared_by_its_values_not_by_its_address(tmp_path: Path, dtype: str) -> None:
    def found(name: str, *values: float) -> dict[str, Any]:
        (tmp_path / name).mkdir()
        tensor = torch.tensor(values).to(getattr(torch, dtype))
        kept.append(tensor)  # so that the next one has another address
        (tmp_path / name / "run.pkl").write_bytes(pickle.dumps({"weight": tensor}))
        return contents(tmp_path / name, (), ())

    kept: list[Any] = []
    first = found("a", 1.0, 0.0)
    assert found("b", 1.0, 0.0) == first
    assert kept[0].data_ptr() != kept[1].data_ptr()
    assert found("c", 0.0, 1.0) != first


def test_a_masked_array_has_the_default_for_a_fill_value_once_it_was_asked_for(tmp_path: Path) -> None:
    def masked(value: float, fill: float | None = None) -> Any:
        found = np.ma.masked_array([value, 2.0, 3.0], [False, True, False])
        if fill is not None:
            found.fill_value = fill
        return found

    asked = masked(1.0)
    assert asked.fill_value == np.ma.default_fill_value(1.0)
    held = [masked(1.0), asked, pickle.loads(pickle.dumps(masked(1.0))), masked(1.5), masked(1.0, -1.0)]
    for number, one in enumerate(held):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "x.pickle").write_bytes(pickle.dumps((one, number > 9)))
    first_, *same, other, filled = (contents(tmp_path / str(number), [], []) for number in range(len(held)))
    assert same == [first_, first_]
    assert other != first_ != filled


@pytest.mark.skipif(np.finfo(np.longdouble).nmant != 63, reason="another format here")
def test_numbers_of_extended_precision_are_compared_without_their_padding(tmp_path: Path) -> None:
    def with_padding(byte: int, more: float = 0.0) -> Any:
        parts = (np.arange(3, dtype=np.longdouble) / 3 + more).view(np.uint8).reshape(3, -1).copy()
        parts[:, 10:] = byte
        return parts.reshape(-1).view(np.longdouble)

    held = [with_padding(0), with_padding(255), with_padding(0, 1e-19)]
    for number, one in enumerate(held):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "x.pickle").write_bytes(pickle.dumps([one, one[1]]))
        np.save(tmp_path / str(number) / "y.npy", one)
    first_, same, other = (contents(tmp_path / str(number), [], []) for number in range(3))
    assert first_ == same
    assert {path.partition(":")[0] for path in first_ if first_[path] != other[path]} == {"x.pickle", "y.npy"}
    leaves = [Walk({}) for _ in held]
    for walk, one in zip(leaves, held, strict=True):
        walk.root("s", one)
    digests = [walk.finish().leaves["s"].digest for walk in leaves]
    assert digests[0] == digests[1] != digests[2]


class Branch:
    """Knows what it hangs on."""

    def __init__(self, parent: "Branch | None" = None) -> None:
        self.parent, self.held, self.data = parent, list["Branch"](), dict[str, Any]()


def of_branches(*weights: float, key: str = "weight") -> Branch:
    root = Branch()
    for weight in weights:
        root.held.append(Branch(root))
        root.held[-1].data["".join(list(key))] = weight  # a text of its own each time
    return root


def test_objects_that_refer_to_each_other_in_circles_are_compared_by_what_they_hold(tmp_path: Path) -> None:
    same_text = of_branches(1.0)
    name = next(iter(same_text.held[0].data))
    same_text.held.append(Branch(same_text))
    same_text.held[-1].data[name] = 2.0
    turned = of_branches(1.0, 2.0)
    turned.held[1].parent = turned.held[0]
    held = [of_branches(1.0, 2.0), same_text, of_branches(1.0, 2.5), of_branches(1.0, 2.0, key="rate"), turned]
    for number, one in enumerate(held):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "x.pickle").write_bytes(pickle.dumps((one, 1)))
    first_, same, *others = (contents(tmp_path / str(number), [], []) for number in range(len(held)))
    assert (tmp_path / "0" / "x.pickle").read_bytes() != (tmp_path / "1" / "x.pickle").read_bytes()
    assert first_ == same
    assert all(other != first_ for other in others)
    assert all(leaf.kind[:5] != "file[" for leaf in first_.values()), "read, and not taken for bytes"


def test_arrays_of_fields_are_read_without_what_lies_between_the_fields(tmp_path: Path) -> None:
    kind = np.dtype({"names": ["at", "left"], "formats": ["<f8", "u1"], "offsets": [0, 8], "itemsize": 16})
    for number, (gap, value) in enumerate([(0, 1.5), (255, 1.5), (0, 2.5)]):
        rows = np.frombuffer(bytes([gap]) * 48, kind).copy()
        rows["at"], rows["left"] = value, [1, 2, 3]
        (tmp_path / str(number)).mkdir()
        joblib.dump({"nodes": rows, "n": 3}, tmp_path / str(number) / "x.joblib")
        (tmp_path / str(number) / "x.pickle").write_bytes(pickle.dumps([rows, 3]))
    first_, same, other = (contents(tmp_path / str(number), [], []) for number in range(3))
    assert first_ == same != other
