"""`parity compare` of any two checkpoints: equal bit for bit, or by how much, where, and what is on one side only."""

import json
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from parity.cli import main
from parity.convert import Tolerance, compare_sources
from parity.convert import comparison as module
from parity.formats import InMemory, Source, open_checkpoint


def source(**leaves: Any) -> Source:
    tree = {name: InMemory(v) if isinstance(v, np.ndarray) else v for name, v in leaves.items()}
    return Source(path=Path("x"), format="test", tree=tree)


def one(a: Any, b: Any, **tolerance: float) -> Any:
    (leaf,) = compare_sources(source(w=a), source(w=b), Tolerance(**tolerance)).leaves
    return leaf


def test_a_difference_has_its_count_its_sizes_and_their_places() -> None:
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    b = a.copy()
    b[0, 1, 2] += 0.5
    b[1, 2, 0] -= 0.25
    b[0, 0, 1] *= 2
    leaf = one(a, b)
    assert (leaf.outcome, leaf.differing, leaf.elements) == ("different", 3, 24)
    assert (leaf.max_abs, leaf.max_abs_at) == (1.0, (0, 0, 1))
    assert (leaf.max_rel, leaf.max_rel_at) == (0.5, (0, 0, 1))


@pytest.mark.parametrize("block", [4, 16, 1 << 20])
def test_the_place_does_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", block)
    a = np.zeros((5, 7))
    b = a.copy()
    b[3, 4], b[4, 6] = 2.0, -1.0
    leaf = one(a, b)
    assert (leaf.differing, leaf.max_abs, leaf.max_abs_at, leaf.max_rel) == (2, 2.0, (3, 4), 1.0)


def test_bits_decide_and_not_values() -> None:
    assert one(np.array([0.0]), np.array([-0.0])).outcome == "different"
    assert one(np.array([math.nan]), np.array([math.nan])).outcome == "equal"
    other = np.array([math.nan]).view(np.int64) + 1
    found = one(np.array([math.nan]), other.view(np.float64))
    assert (found.outcome, found.differing) == ("different", 1)
    found = one(np.array([1.0, math.nan]), np.array([1.0, 2.0]))
    assert math.isnan(found.max_abs)
    assert found.max_abs_at == (1,)
    big = np.array([2**60], np.int64)
    assert one(big, big + 1).differing == 1


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int8",
        "uint16",
        "uint64",
        "float16",
        "complex64",
        "complex128",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
    ],
)
def test_one_flipped_bit_is_found_in_every_type(dtype: str) -> None:
    a = np.ones((3, 4), getattr(ml_dtypes, dtype, None) or np.dtype(dtype))
    assert one(a, a.copy()).outcome == "equal"
    raw = bytearray(a.tobytes())
    raw[a.itemsize * 5] ^= 1
    b = np.frombuffer(bytes(raw), a.dtype).reshape(a.shape)
    leaf = one(a, b)
    assert (leaf.outcome, leaf.differing, leaf.max_abs_at) == ("different", 1, (1, 1))


def test_a_tolerance_is_that_of_numpy() -> None:
    a, b = np.array([1.0, 100.0]), np.array([1.0 + 1e-7, 100.0 + 1e-5])
    assert one(a, b, rtol=2e-7).outcome == "close"
    assert one(a, b, rtol=5e-8).outcome == "different"
    assert one(a, b, atol=1e-5).outcome == ("close" if np.allclose(a, b, 0, 1e-5) else "different")
    assert one(a, np.array([1.0, math.nan]), rtol=1.0, atol=1.0).outcome == "different"


@pytest.mark.parametrize("tolerance", [{"rtol": 1e-5}, {"rtol": 1.0, "atol": 1e9}, {"atol": 1.0}])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.complex64])
def test_nothing_is_near_infinity_but_itself(kind: Any, tolerance: dict[str, float]) -> None:
    a = np.array([1.0, math.inf, -math.inf, 2.0], kind)
    assert one(a, a.copy(), **tolerance).outcome == "equal"
    for at, value in ((3, math.inf), (0, -math.inf), (1, -math.inf), (1, 1e30), (2, math.nan)):
        b = a.copy()
        b[at] = value
        assert one(a, b, **tolerance).outcome == one(b, a, **tolerance).outcome == "different", (at, value)


def test_another_type_is_no_match_even_where_the_values_are() -> None:
    a = np.array([1.0, 2.5], np.float32)
    same = one(a, a.astype(ml_dtypes.bfloat16))
    assert (same.outcome, same.differing) == ("other type", 0)
    lossy = one(np.array([0.1], np.float32), np.array([0.1], np.float32).astype(ml_dtypes.bfloat16))
    assert (lossy.outcome, lossy.differing) == ("other type", 1)
    assert one(a, a.reshape(2, 1)).outcome == "other type"


def test_scalars_keep_their_types() -> None:
    for a, b in ((1, True), (1, 1.0), (None, 0), (0.0, -0.0), ("1", 1), ([], ()), ([], {})):
        assert one(a, b).outcome == "different", (a, b)
    assert one(math.nan, math.nan).outcome == "equal"


def test_wrappers_before_names_do_not_matter_where_that_is_unique() -> None:
    a = source(**{"module.layers.0.weight": np.ones(2), "module.head": np.ones(3)})
    b = source(**{"_orig_mod.layers.0.weight": np.ones(2), "head": np.zeros(3)})
    found = compare_sources(a, b)
    assert (found.renamed, found.compared, found.same) == (2, 2, False)
    assert [leaf.outcome for leaf in found.leaves] == ["equal", "different"]
    twice = source(**{"model.w": np.ones(2), "module.w": np.zeros(2)})
    assert compare_sources(twice, source(w=np.ones(2))).compared == 0


def test_equal_digests_of_two_seals_decide_without_reading() -> None:
    class Unread(InMemory):
        def read(self, box: Any) -> Any:
            raise AssertionError("was read")

    a, b = (
        Source(path=Path("x"), format="t", tree={"w": Unread(np.ones(2))}, digests={"w": text})
        for text in ("float64[2] blocks 1", "float64[2] blocks 1")
    )
    assert compare_sources(a, b).leaves[0].by_seal
    other = Source(path=Path("x"), format="t", tree=b.tree, digests={"w": "float64[2] blocks 2"})
    with pytest.raises(AssertionError, match="was read"):
        compare_sources(a, other)


def test_the_command_compares_two_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = {"layers.0.weight": torch.ones(2, 3), "layers.0.bias": torch.zeros(2)}
    torch.save({"model": state}, tmp_path / "a.pt")
    save_file(state, tmp_path / "b.safetensors")
    paths = [str(tmp_path / "a.pt"), str(tmp_path / "b.safetensors")]
    assert main(["compare", *paths]) == 0
    assert "2 leaves: 2 equal bit for bit" in capsys.readouterr().out
    save_file({**state, "layers.0.bias": torch.tensor([0.0, 1e-6])}, tmp_path / "b.safetensors")
    assert main(["compare", *paths]) == 1
    shown = capsys.readouterr().out
    assert "model.layers.0.bias = layers.0.bias" in shown
    assert "1 of 2" in shown
    assert "1 different" in shown
    assert main(["compare", *paths, "--atol", "1e-5"]) == 0
    assert main(["compare", *paths, "--json"]) == 1
    capsys.readouterr().out.partition("{")
    save_file({"other": torch.ones(1)}, tmp_path / "b.safetensors")
    assert main(["compare", *paths]) == 5
    assert "nothing compared" in capsys.readouterr().err


def test_its_json_is_valid_where_a_difference_is_not_finite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("a", math.nan), ("b", 1.0)):
        torch.save({"w": torch.tensor([value])}, tmp_path / f"{name}.pt")
    assert main(["compare", str(tmp_path / "a.pt"), str(tmp_path / "b.pt"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["leaves"][0]["max_abs"] == "nan"


@pytest.mark.parametrize("words", [["--rtol", "-1"], ["--atol", "nan"], ["--rtol", "much"]])
def test_a_tolerance_that_is_none_is_refused(tmp_path: Path, words: list[str]) -> None:
    torch.save({"w": torch.ones(1)}, tmp_path / "a.pt")
    with pytest.raises(SystemExit, match="2"):
        main(["compare", str(tmp_path / "a.pt"), str(tmp_path / "a.pt"), *words])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (({"step": "1"}, {"step": "1"}), []),
        (({"step": "1"}, {"step": "2"}), [("__metadata__.step", "different")]),
        (({"step": "1"}, {}), [("__metadata__.step", "only in A")]),
        (({}, {"zz": "1"}), [("__metadata__.zz", "only in B")]),
    ],
)
def test_words_of_a_header_are_leaves_where_they_differ(
    tmp_path: Path, words: tuple[dict[str, str], ...], expected: list[tuple[str, str]]
) -> None:
    sources = []
    for at, words_of in enumerate(words):
        path = tmp_path / f"{at}.safetensors"
        save_file({"w": torch.ones(2)}, path, words_of)
        sources.append(open_checkpoint(path))
    found = compare_sources(*sources)
    assert [(leaf.name, leaf.outcome) for leaf in found.leaves if leaf.name != "w"] == expected
    assert found.same == (not expected)
