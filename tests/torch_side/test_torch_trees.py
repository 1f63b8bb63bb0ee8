"""Trees of PyTorch: objects that hold state, models on meta, tied tensors."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import pytest
import torch

import torch_side
from parity.errors import CheckpointError
from tests.support.tree_states import same


def training(kind: type = torch.optim.AdamW, schedule: str = "cosine", dtype: Any = torch.float32) -> dict[str, Any]:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).to(dtype)
    optimizer = kind(model.parameters(), lr=1e-3, **({"momentum": 0.9} if kind is torch.optim.SGD else {}))
    schedulers: Mapping[str, Callable[[], Any]] = {
        "cosine": lambda: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10),
        "lambda": lambda: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step),
        "plateau": lambda: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
        "one cycle": lambda: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 10),
    }
    scaler, generator = torch.amp.GradScaler("cpu"), torch.Generator().manual_seed(len(schedule))
    made = {"model": model, "optimizer": optimizer, "scheduler": schedulers[schedule](), "scaler": scaler}
    return {**made, "generator": generator, "epoch": 0}


def stepped(state: dict[str, Any]) -> dict[str, Any]:
    state["model"](torch.ones(4, 2)).sum().backward()
    state["optimizer"].step()
    state["scheduler"].step(*([0.5] if type(state["scheduler"]).__name__ == "ReduceLROnPlateau" else []))
    torch.rand(3, generator=state["generator"])
    return {**state, "epoch": 4}


@pytest.mark.parametrize(
    ("kind", "schedule"),
    [
        (torch.optim.AdamW, "cosine"),
        (torch.optim.SGD, "one cycle"),
        (torch.optim.Adafactor, "lambda"),
        (torch.optim.Adam, "plateau"),
    ],
)
def test_a_training_state_goes_into_new_objects(kind: type, schedule: str, tmp_path: Path) -> None:
    live, like = stepped(training(kind, schedule)), training(kind, schedule)
    torch_side.save(tmp_path / "a", live)
    found = torch_side.restore(tmp_path / "a", like=like)
    assert (found.extra, found.filled, found.converted) == ((), (), {})
    for name in ("model", "optimizer", "scheduler", "scaler"):
        assert found.tree[name] is like[name]
        assert same(plain(live[name].state_dict()), plain(like[name].state_dict()), name) == []
    assert torch.equal(live["generator"].get_state(), like["generator"].get_state())
    assert found.tree["epoch"] == 4


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


OBJECTS: list[tuple[str, Callable[[], dict[str, Any]], str]] = [
    (
        "another optimizer",
        lambda: training(torch.optim.SGD),
        r"optimizer.param_groups.0.dampening: is not in",
    ),
    ("another scheduler", lambda: training(schedule="plateau"), r"scheduler.T_max: is in the checkpoint, and not in"),
    (
        "another dtype",
        lambda: training(dtype=torch.bfloat16),
        r"model.0.weight: is float32.*\n(.*\n)*.*exp_avg: is",
    ),
    ("no scaler", lambda: {**training(), "scaler": torch.amp.GradScaler("cpu", enabled=False)}, r"scaler\.scale: is"),
    ("another shape", lambda: {**training(), "model": torch.nn.Linear(2, 4)}, r"model.weight: is not in the checkpo"),
]


@pytest.mark.parametrize("case", OBJECTS, ids=[name for name, *_ in OBJECTS])
def test_objects_that_do_not_fit_are_named_and_none_is_changed(case: Any, tmp_path: Path) -> None:
    torch_side.save(tmp_path / "a", stepped(training()))
    like = case[1]()
    before = {name: [t.clone() for t in tensors(like[name].state_dict())] for name in ("model", "optimizer")}
    with pytest.raises(CheckpointError, match=case[2]):
        torch_side.restore(tmp_path / "a", like=like)
    for name, values in before.items():
        assert all(torch.equal(a, b) for a, b in zip(values, tensors(like[name].state_dict()), strict=True))


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in jax.tree.leaves(value) if isinstance(leaf, torch.Tensor)]


def test_a_model_on_meta_gets_its_values_and_map_location_says_where(tmp_path: Path) -> None:
    live = torch.nn.Linear(2, 3)
    torch_side.save(tmp_path / "a", {"model": live, "t": torch.ones(2)})
    with torch.device("meta"):
        like = {"model": torch.nn.Linear(2, 3), "t": torch.ones(2)}
    found = torch_side.restore(tmp_path / "a", like=like, map_location="cpu").tree
    assert torch.equal(found["model"].weight, live.weight)
    assert found["model"].weight.requires_grad
    assert found["t"].device == torch.device("cpu")
    assert torch_side.restore(tmp_path / "a", map_location="meta").tree["t"].is_meta
    with pytest.raises(CheckpointError, match=r"t: has a type, and no value"):
        torch_side.save(tmp_path / "b", {"t": torch.ones(2, device="meta")})


def test_tied_tensors_stay_tied_in_the_file_and_untied_ones_apart(tmp_path: Path) -> None:
    weight = torch.arange(5000.0)
    with torch_side.CheckpointManager(tmp_path) as manager:
        manager.save(1, {"a": {"x": weight, "y": weight}})
        manager.save(2, {"a": {"x": weight, "y": weight + 1}})
    first, second = (manager.restore(step).tree["a"] for step in (1, 2))
    assert first["x"].data_ptr() == first["y"].data_ptr()
    assert torch.equal(second["y"], second["x"] + 1)
    like = {"a": {"x": torch.zeros(5000), "y": torch.zeros(5000)}}
    apart = manager.restore(1, like=like).tree["a"]
    assert apart["x"].data_ptr() != apart["y"].data_ptr(), "the template does not tie them"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_a_nested_tensor_is_refused_by_its_name(tmp_path: Path) -> None:
    """Its layout is strided, and to ask for its shape is an error of PyTorch's own."""
    tree = {"w": torch.ones(2), "n": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])}
    with pytest.raises(CheckpointError, match=r"n: is a tensor of torch.float32, nested, which no checkpoint holds"):
        torch_side.save(tmp_path / "a", tree)
    assert [*tmp_path.iterdir()] == []
