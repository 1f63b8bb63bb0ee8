"""`parity compare` after a conversion, and of two checkpoints of a run: one engine, the size of each difference."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parity.checkpoints import ByteRange, Seal, commit, neutral_source
from parity.cli import main
from parity.convert import open_any, writer_of
from parity.formats import Array
from parity.state import digest_text
from tests.convert.states import named, saved, trained
from tests.convert.test_convert import RULES
from tests.support.sealed import flip


@pytest.mark.parametrize("rules", ["", RULES])
@pytest.mark.parametrize("plain", [True, False])
def test_a_conversion_is_equal_to_its_source_either_way(
    tmp_path: Path, rules: str, plain: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own rules are in it: transposed, stacked and split leaves are led back and compared bit for bit."""
    state = trained(plain=plain)
    source, target = saved(tmp_path, state), tmp_path / "o"
    words = [] if plain else named(tmp_path, state)
    if rules:
        (tmp_path / "rules.toml").write_text(rules)
        words += ["--rules", str(tmp_path / "rules.toml")]
    assert main(["convert", str(source), str(target), "--to", "flax-msgpack", *words]) == 0
    capsys.readouterr()
    for pair in ((source, target), (target, source)):
        assert main(["compare", *map(str, pair)]) == 0
        said = capsys.readouterr()
        assert "only in" not in said.out
        assert "o was led back to PyTorch by the rules of its conversion" in said.err
    state["optimizer"]["state"][0]["exp_avg"].view(-1)[0] += 1
    other = saved(tmp_path, state, "other.pt")
    assert main(["compare", str(other), str(target), "--json"]) == 1
    [leaf] = [leaf for leaf in json.loads(capsys.readouterr().out)["leaves"] if leaf["outcome"] != "equal"]
    assert leaf["name"] == "optimizer.state.0.exp_avg"
    assert leaf["max_abs"] == pytest.approx(1, rel=1e-6)


def test_a_conversion_that_cannot_be_led_back_is_compared_by_the_names_of_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = saved(tmp_path, trained(plain=True))
    assert main(["convert", str(source), str(tmp_path / "o"), "--to", "flax-msgpack"]) == 0
    tree = dict(open_any(tmp_path / "o").tree)
    tree["opt_state"] = {**tree["opt_state"], "0": {"unheard": tree["opt_state"]["0"]["mu"]}}
    writer_of("flax-msgpack").write(tree, tmp_path / "other")
    capsys.readouterr()
    assert main(["compare", str(source), str(tmp_path / "other")]) != 0
    assert "cannot be led back" in capsys.readouterr().err


AXES = {"float32": (1, 0), "bfloat16": (1, 0), "float64": ()}


def checkpoint(home: Path, step: int, side: str, values: dict[str, Any]) -> Path:
    """Make a sealed checkpoint of a run; JAX's matrices lie with their axes exchanged."""
    import ml_dtypes  # noqa: F401

    draft = home / f".{step}.draft"
    draft.mkdir(parents=True)
    data, leaves, places = b"head", {}, {}
    for name, value in values.items():
        if not isinstance(value, np.ndarray):
            leaves[name] = f"int {value}"
            continue
        order = (1, 0) if side == "jax" and value.ndim == 2 else ()
        leaves[name] = digest_text(value, order)
        own = (value.transpose(order) if order else value).tobytes()
        places[name] = (ByteRange("state", len(data), len(own)),)
        data += own
    (draft / "state").write_bytes(data)
    common = {"metric": None, "saved_at": 1.0, "spec_hash": "aa"}
    commit(draft, home / str(step), Seal(step=step, side=side, leaves=leaves, places=places, **common))
    return home / str(step)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A checkpoint of each side; one element of one leaf differs by 1e-7."""
    weight = np.arange(6, dtype=np.float32).reshape(2, 3) / 8
    near = weight.copy()
    near[1, 0] += np.float32(1e-7)
    rest = {"model.params.b": np.ones(3), "counters.step": 7}
    first = checkpoint(tmp_path / "a" / "checkpoints", 7, "torch", {"model.params.w": weight, **rest})
    return first, checkpoint(tmp_path / "b" / "checkpoints", 7, "jax", {"model.params.w": near, **rest})


def test_the_size_of_a_difference_between_the_sides_is_always_shown(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", *map(str, pair)]
    assert main(words) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "model.params.w" in said
    assert "1 of 6 elements, by up to 8.9e-08" in said
    for flags, code, shown in (
        (["--rtol", "1e-5"], 0, "2 equal bit for bit, 1 within the tolerance"),
        (["--rtol", "1e-9"], 1, "2 equal bit for bit, 1 different"),
        (["--all"], 1, "[1, 0]"),
    ):
        assert main([*words, *flags]) == code
        said = capsys.readouterr().out
        assert shown in said
        assert "only in" not in said


def test_neutral_names_have_pytorchs_axes_on_either_side(pair: tuple[Path, Path]) -> None:
    first, second = (neutral_source(path).tree for path in pair)
    assert {name: leaf.shape for name, leaf in first.items() if isinstance(leaf, Array)} == {
        "model.params.w": (2, 3),
        "model.params.b": (3,),
    }
    assert np.allclose(first["model.params.w"].load(), second["model.params.w"].load(), atol=1e-6)
    assert str(first["counters.step"]) == "int 7"


def test_equal_seals_say_what_was_read_and_a_flipped_bit_is_found_by_reading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = {"model.params.w": np.arange(6, dtype=np.float32).reshape(2, 3)}
    paths = [checkpoint(tmp_path / name / "checkpoints", 7, "torch", value) for name in "ab"]
    flip(paths[1] / "state", 9)
    words = ["compare", *map(str, paths)]
    assert main(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the seals and the sizes of the files were read, no array; --bytes reads them" in said
    assert main([*words, "--bytes"]) == 1
    assert "is damaged" in capsys.readouterr().out


def test_a_flipped_bit_of_two_sealed_files_is_found_by_reading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "a.pt"
    torch.save({"w": torch.arange(6.0)}, source)
    for name in ("b", "c"):
        assert main(["convert", str(source), str(tmp_path / name), "--to", "safetensors"]) == 0
    flip(tmp_path / "c", (tmp_path / "c").stat().st_size - 2)
    words = ["compare", str(tmp_path / "b"), str(tmp_path / "c")]
    capsys.readouterr()
    assert main(words) == 0
    assert "by their seals, not read" in capsys.readouterr().out
    assert main([*words, "--bytes"]) == 1
