"""Every ordered pair of formats that hold a training state: into one, from it into the other, and back to PyTorch."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from parity.cli import main
from parity.convert import compare_sources, open_any
from parity.formats import FAMILIES
from tests.convert.states import named, saved, trained
from tests.convert.test_convert import CLASSES
from tests.convert.test_others import WHOLE

FIXTURES = Path(__file__).parents[1] / "formats" / "fixtures"
FORMATS = ("torch.save", "safetensors", "dcp", "orbax", "flax-msgpack")
"""Those that hold a training state; a Hugging Face folder holds a model."""

PAIRS = list(product(FORMATS, FORMATS))


def convert(source: Path, target: Path, to: str, *words: str) -> None:
    assert main(["convert", str(source), str(target), "--to", to, *words]) == 0, (source, to)


def around(home: Path, source: Path, names: list[str], pairs: list[tuple[str, str]] = PAIRS) -> Iterator[str]:
    """Convert a file along each pair and back; yield each difference from the source."""
    before = {path: path.stat().st_mtime_ns for path in [source, *source.rglob("*")]}
    home.mkdir()
    for first in dict.fromkeys(one for one, _ in pairs):
        convert(source, home / first, first, *(names if FAMILIES[first] == "jax" else ()))
    for first, second in pairs:
        onward, back = home / f"{first}-{second}", home / f"{first}-{second}.pt"
        crosses = FAMILIES[first] == "torch" and FAMILIES[second] == "jax"
        convert(home / first, onward, second, *(names if crosses else ()))
        convert(onward, back, "torch.save")
        found = compare_sources(open_any(source), open_any(back))
        assert found.leaves
        for leaf in found.leaves:
            if leaf.outcome != "equal":
                yield f"{first}, {second}: {leaf.name} {leaf.outcome}"
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.takes_seconds
def test_every_pair_of_formats_carries_a_training_state(tmp_path: Path) -> None:
    """Groups, a late and an unused parameter, schedule, scaler, streams, a tuple, names that are not ASCII."""
    state = trained()
    assert list(around(tmp_path / "pairs", saved(tmp_path, state), named(tmp_path, state))) == []


def test_a_difference_along_the_way_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same walk with one moment that a writer of the second format changes by one bit."""
    from parity.convert import engine

    state = trained(plain=True)
    honest = engine._write

    def dishonest(writer: Any, tree: Any, *rest: Any) -> None:
        if writer.format == "safetensors":
            tree["optimizer"]["state"][0]["exp_avg"] = flipped(tree["optimizer"]["state"][0]["exp_avg"])
        honest(writer, tree, *rest)

    monkeypatch.setattr(engine, "_write", dishonest)
    monkeypatch.setattr(engine, "require_same", lambda *_: None)  # it would refuse what this writer wrote
    pairs = [("torch.save", "torch.save"), ("orbax", "safetensors")]
    differences = list(around(tmp_path / "pairs", saved(tmp_path, state), [], pairs))
    assert differences == ["orbax, safetensors: optimizer.state.0.exp_avg different"]


def flipped(array: Any) -> Any:
    from parity.formats import InMemory

    value = array.load()
    value.reshape(-1).view("u1")[0] ^= 1
    return InMemory(value)


@pytest.mark.soak
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("plain", [True, False])
def test_every_pair_of_formats_carries_every_optimizer(tmp_path: Path, kind: str, plain: bool) -> None:
    state = trained(kind, plain=plain, **CLASSES[kind])
    if plain:  # safetensors and DCP keep no order of names, so they are given for one group too
        state["names"] = [name for name in state["model"] if "running" not in name and "num_b" not in name]
    names = named(tmp_path, state)
    assert list(around(tmp_path / "pairs", saved(tmp_path, state), names)) == []


@pytest.mark.soak
@pytest.mark.parametrize("name", WHOLE)
def test_every_pair_of_formats_carries_what_other_libraries_wrote(tmp_path: Path, name: str) -> None:
    (tmp_path / "names").write_text("\n".join(ORDERS.get(name, ())))
    words = ["--names", str(tmp_path / "names")] if name in ORDERS else []
    assert list(around(tmp_path / "pairs", FIXTURES / name, words)) == []


ORDERS = dict.fromkeys(("trainers/ddp.pt", "trainers/nanogpt.pt"), ("0.weight", "0.bias", "1.weight", "1.bias"))
"""Parameters of the optimizer, of files that say no order: safetensors and DCP keep none of their own."""


@pytest.mark.parametrize("to", FORMATS)
def test_a_model_folder_becomes_each_format_and_is_one_again(tmp_path: Path, to: str) -> None:
    source = saved(tmp_path, {"model": {f"w{n}": torch.randn(3, 4) for n in range(3)}})
    for before, after, kind in (("state.pt", "a", "hugging-face"), ("a", "b", to), ("b", "c", "hugging-face")):
        convert(tmp_path / before, tmp_path / after, kind, "--only", "params")
    found = compare_sources(open_any(source), open_any(tmp_path / "c"))
    assert [leaf for leaf in found.leaves if leaf.outcome != "equal"] == []
    assert found.compared == 3
