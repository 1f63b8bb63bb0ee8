"""What the capture of live state sees of PyTorch, and that it changes nothing."""

import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, TensorDataset

from parity import sides
from parity.capture import StateSnapshot, Walk
from torch_side.adapters.files import read_saved


def see(**values: Any) -> StateSnapshot:
    sides.adapters()
    walk = Walk()
    for name, value in values.items():
        walk.root(name, value)
    return walk.finish()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("table", torch.ones(3), persistent=False)
        self.rate = 0.25

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(ids))


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.1), nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, amsgrad=True)
    model(torch.randn(6, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_a_module_shows_parameters_buffers_modes_and_ties() -> None:
    leaves = see(model=Tied()).leaves
    components = {path: (leaf.role, leaf.component) for path, leaf in leaves.items()}
    assert components["model.embedding.weight"] == ("state", "model.params")
    assert components["model.head.weight"] == ("alias", "model.ties")
    assert leaves["model.head.weight"].digest == "model.embedding.weight"
    assert components["model.table"] == ("state", "model.buffers")
    assert components["model.training"] == ("state", "model.mode")
    assert components["model.embedding.weight.requires_grad"] == ("state", "model.requires_grad")
    assert leaves["model.rate"].digest == "0.25"


def test_two_parameters_of_one_memory_are_tied() -> None:
    """As `head.weight.data = embedding.weight.data` ties them: two objects, and an update of one moves the other."""
    model = Tied()
    model.head.weight = nn.Parameter(model.embedding.weight.data)
    leaves = see(model=model).leaves
    assert (leaves["model.head.weight"].role, leaves["model.head.weight"].component) == ("alias", "model.ties")
    whole = torch.zeros(6)
    found = see(a=whole, b=whole.view(6), half=whole[:3], rows=whole.view(2, 3), copy=whole.clone()).leaves
    assert [path for path, leaf in found.items() if leaf.role == "alias"] == ["b"]


def test_an_optimizer_shows_its_slots_by_parameter_name_and_every_hyperparameter() -> None:
    model, optimizer = trained()
    leaves = see(optimizer=optimizer, model=model).leaves
    slots = {p: leaf.component for p, leaf in leaves.items() if p.startswith("optimizer.state[model.0.weight]")}
    assert slots == {
        "optimizer.state[model.0.weight].step": "optimizer.step",
        "optimizer.state[model.0.weight].exp_avg": "optimizer.first_moment",
        "optimizer.state[model.0.weight].exp_avg_sq": "optimizer.second_moment",
        "optimizer.state[model.0.weight].max_exp_avg_sq": "optimizer.max_second_moment",
    }
    assert leaves["optimizer.param_groups[0].lr"].component == "schedule.lr"
    assert leaves["optimizer.param_groups[0].betas[1]"].digest == "0.999"
    assert leaves["optimizer.param_groups[0].params"].component == "optimizer.param_order"


def test_an_optimizer_without_its_model_shows_the_parameters() -> None:
    _, optimizer = trained()
    assert see(o=optimizer).leaves["o.param_groups[0].params[0]"].component == "model.params"


def test_the_order_of_parameters_shows() -> None:
    model, _ = trained()
    orders = [list(model.parameters()), list(reversed(list(model.parameters())))]
    seen = [see(model=model, o=torch.optim.SGD(order)).leaves["o.param_groups[0].params"] for order in orders]
    assert not seen[0].same(seen[1])


@pytest.mark.parametrize(
    ("make", "leaf", "component"),
    [
        (lambda o: torch.optim.lr_scheduler.StepLR(o, 3), "last_epoch", "schedule.step"),
        (lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 9), "T_max", "schedule.T_max"),
        (lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=9), "total_steps", "schedule.step"),
        (
            lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=2),
            "num_bad_epochs",
            "schedule.num_bad_epochs",
        ),
    ],
)
def test_a_scheduler_shows_its_position_and_configuration(make: Any, leaf: str, component: str) -> None:
    _, optimizer = trained()
    assert see(s=make(optimizer)).leaves[f"s.{leaf}"].component == component


def test_a_sequence_of_schedulers_shows_the_inner_ones() -> None:
    _, optimizer = trained()
    parts = [torch.optim.lr_scheduler.ConstantLR(optimizer, 0.5, 2), torch.optim.lr_scheduler.StepLR(optimizer, 2)]
    leaves = see(s=torch.optim.lr_scheduler.SequentialLR(optimizer, parts, [3])).leaves
    assert leaves["s._schedulers[1].last_epoch"].component == "schedule.step"


def test_a_scaler_shows_scale_and_growth_tracker_also_before_it_is_used() -> None:
    leaves = see(scaler=torch.amp.GradScaler("cpu", init_scale=64.0)).leaves
    assert (leaves["scaler.scale"].component, leaves["scaler.scale"].digest) == ("scaler.scale", "64.0")
    assert leaves["scaler._growth_tracker"].component == "scaler.growth_tracker"


def test_an_averaged_model_is_ema() -> None:
    model, _ = trained()
    leaves = see(model=model, averaged=AveragedModel(model)).leaves
    assert leaves["averaged.module.0.weight"].component == "ema"


def test_a_generator_and_the_shared_one_are_streams() -> None:
    generator = torch.Generator().manual_seed(1)
    before = see(g=generator).leaves["g"]
    assert before.role == "stream"
    torch.rand(1, generator=generator)
    assert not before.same(see(g=generator).leaves["g"])


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64]
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 4)])
def test_every_dtype_and_shape_has_a_leaf_that_one_bit_changes(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    value = torch.zeros(shape, dtype=dtype)
    leaf = see(v=value).leaves["v"]
    assert leaf.same(see(v=value.clone()).leaves["v"])
    if value.numel():
        value.view(-1)[0] = 1
        assert not leaf.same(see(v=value).leaves["v"])


def test_the_order_of_axes_belongs_to_a_leaf() -> None:
    value = torch.arange(6.0).reshape(2, 3)
    assert "@1,0" in see(v=value.T).leaves["v"].kind
    assert not see(v=value.T).leaves["v"].same(see(v=value.T.contiguous()).leaves["v"])


def loader(workers: int = 0) -> DataLoader[Any]:
    data = TensorDataset(torch.arange(12.0))
    generator = torch.Generator().manual_seed(0)
    return DataLoader(data, batch_size=2, shuffle=True, generator=generator, num_workers=workers)


@pytest.mark.takes_seconds
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # by JAX, where another test has imported it
@pytest.mark.parametrize("workers", [0, 1])
def test_the_position_of_a_loader_is_seen_and_looking_does_not_move_it(workers: int) -> None:
    twin, seen = iter(loader(workers)), iter(loader(workers))
    before = see(it=seen).leaves
    assert before == see(it=seen).leaves
    assert torch.equal(next(twin)[0], next(seen)[0])
    after = see(it=seen)
    assert after.leaves["it.yielded"].digest == "1"
    assert after.leaves["it.yielded"].component == "data.position"
    assert ("it.workers" in after.unseen) == bool(workers)
    assert torch.equal(next(twin)[0], next(seen)[0])


def test_looking_changes_nothing() -> None:
    model, optimizer = trained()
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9)
    scaler = torch.amp.GradScaler("cpu")
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}
    before = copy.deepcopy({name: part.state_dict() for name, part in parts.items()})
    state = torch.get_rng_state()
    first = see(**parts).leaves
    assert first == see(**parts).leaves
    assert torch.equal(state, torch.get_rng_state())
    for name, part in parts.items():
        assert repr(part.state_dict()) == repr(before[name])
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()


@pytest.mark.takes_seconds
def test_a_compiled_model_keeps_the_names_of_its_own() -> None:
    assert "model.0.weight" in see(model=torch.compile(trained()[0], backend="eager")).leaves


def test_what_was_looked_at_can_still_be_resized_by_its_owner() -> None:
    kept, grown = torch.ones(4, requires_grad=True), torch.ones(2, 3).t()
    walk = Walk(keep=("kept", "grown"))
    sides.adapters()
    walk.root("kept", kept)
    walk.root("grown", grown)
    assert walk.finish().values["kept"].tolist() == [1, 1, 1, 1]
    for tensor in (kept.detach(), grown):
        tensor.untyped_storage().resize_(0)
    leaves = see(kept=kept, grown=grown).leaves
    assert (leaves["kept"].kind, leaves["kept"].digest) == ("float32[4]@freed", ""), "its memory must not be read"
    grown.untyped_storage().resize_(24)
    assert see(grown=grown.copy_(torch.ones(3, 2))).leaves["grown"].digest


def test_keys_that_are_objects_have_one_name_in_all_processes() -> None:
    leaves = see(table={trained: 3, "a": 4}, known={trained}).leaves
    assert leaves["table[<function trained>]"].digest == "3"
    assert not [path for path in leaves if " at 0x" in path]


def test_scenarios_that_read_side_by_side_do_not_take_what_is_safe_from_each_other(tmp_path: Path) -> None:
    """PyTorch keeps what may be unpickled for the whole process: one reader of five failed while another ended."""
    file = tmp_path / "state.pt"
    torch.save({"numpy": np.random.get_state(), "weight": torch.zeros(3)}, file)  # noqa: NPY002
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: read_saved(file), range(200)))
    assert all(held["numpy"][0] == "MT19937" for held in found)
