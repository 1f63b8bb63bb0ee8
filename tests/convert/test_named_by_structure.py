"""Names decide nothing: parameters called as buffers are, and two parameters of one storage, keep their moments."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from parity.convert import Ledger, Options, read_torch_state, to_jax
from parity.convert.naming import Naming
from parity.convert.torch_names import statistics
from parity.errors import CheckpointError
from tests.convert.test_naming import lazy


class Module(torch.nn.Module):
    """Arrays by name, in order; those in `buffers` are no parameters."""

    def __init__(self, sizes: dict[str, tuple[int, ...]], buffers: Sequence[str] = ()) -> None:
        super().__init__()
        for name, size in sizes.items():
            if name in buffers:
                self.register_buffer(name, torch.randn(size))
            else:
                setattr(self, name, torch.nn.Parameter(torch.randn(size)))


def saved(model: torch.nn.Module, names: Sequence[str] = ()) -> dict[str, Any]:
    """Return a state after a step of AdamW on some parameters, all of them by default; wholly as a file has it."""
    own = dict(model.named_parameters())
    trained = [own[name] for name in names] or list(own.values())
    optimizer = torch.optim.AdamW(trained)
    for p in trained:
        p.grad = torch.randn_like(p)
    optimizer.step()
    return {"model": lazy(dict(model.state_dict())), "optimizer": lazy(optimizer.state_dict()), "step": 1}


def named(tree: Any) -> list[str]:
    part = read_torch_state(tree, Naming(ordered=True)).optimizer
    assert part is not None
    return list(part.names.values())


@pytest.mark.parametrize("name", ["running_mean", "running_var", "num_batches_tracked", "other"])
def test_a_parameter_is_no_buffer_by_its_name(name: str) -> None:
    """Of three arrays of one shape two have moments: whichever is left out, by name or not, is a guess."""
    with pytest.raises(CheckpointError, match=r"fit in several ways: .*--names FILE, .* --model mine:Model"):
        named(saved(Module({name: (4,), "zz": (4,), "aa": (4,)}, ["aa"])))


def test_a_parameter_called_as_a_buffer_is_proven_by_its_shape_and_goes_to_the_parameters() -> None:
    tree = saved(Module({"running_mean": (3,), "zz": (4,), "aa": (4, 4)}, ["aa"]))
    assert named(tree) == ["running_mean", "zz"]
    made = to_jax(tree, Options(), Ledger(), ordered=True)
    assert set(made["params"]) == {"running_mean", "zz", "aa"}
    assert set(made["opt_state"][0]["mu"]) == {"running_mean", "zz"}


def test_a_parameter_that_names_or_a_model_state_goes_to_the_parameters() -> None:
    model = Module({"running_mean": (4,), "zz": (4,), "aa": (4,)}, ["aa"])
    tree, names = saved(model), ["running_mean", "zz"]
    for options in (Options(names=names), Options(registered=[(name, True) for name in names])):
        made = to_jax(tree, options, Ledger(), ordered=True)
        moments = made["opt_state"][0]["mu"]
        for at, name in enumerate(names):
            assert name in made["params"]
            assert moments[name] is tree["optimizer"]["state"][at]["exp_avg"]


@pytest.mark.parametrize("affine", [True, False])
def test_the_statistics_of_a_normalization_are_left_out_by_their_structure(affine: bool) -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4, affine=affine), torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    )
    tree = saved(model)
    assert named(tree) == [name for name, _ in model.named_parameters()]
    assert set(to_jax(tree, Options(), Ledger(), ordered=True)["buffers"]["1"]) == {
        "running_mean",
        "running_var",
        "num_batches_tracked",
    }


def test_what_is_no_whole_normalization_is_none() -> None:
    model = {name: value.numpy() for name, value in torch.nn.BatchNorm1d(4).state_dict().items()}
    whole = lazy({name: torch.from_numpy(np.asarray(value)) for name, value in model.items()})
    assert statistics(whole, ordered=True) == {"running_mean", "running_var", "num_batches_tracked"}
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        assert not statistics({key: value for key, value in whole.items() if key != name})
        assert not statistics({**whole, name: lazy(torch.ones(3))})
    moved = {**{key: value for key, value in whole.items() if key != "running_mean"}}
    assert not statistics({"running_mean": whole["running_mean"], **moved}, ordered=True)


def test_two_parameters_of_one_storage_are_not_taken_for_tied() -> None:
    weight = torch.randn(4, 4)
    model = Module({"z": (4, 4), "y": (4, 4), "aa": (4, 4)}, ["aa"])
    model.z, model.y = torch.nn.Parameter(weight), torch.nn.Parameter(weight)
    with pytest.raises(CheckpointError, match=r"several ways: .*buffers or tied; .*--names FILE"):
        named(saved(model))
    model.x = torch.nn.Parameter(torch.randn(4, 4))
    with pytest.raises(CheckpointError, match="several ways"):
        named(saved(model, ["z", "y"]))
    alone = Module({"z": (4, 4), "y": (4, 4)})
    alone.z, alone.y = torch.nn.Parameter(weight), torch.nn.Parameter(weight)
    assert named(saved(alone)) == ["z", "y"]


def test_a_tied_head_is_left_out_where_the_shapes_fit_in_one_way() -> None:
    """As in GPT-2, and as in T5, whose embedding has three names."""
    model = torch.nn.Module()
    model.shared = torch.nn.Embedding(7, 4)
    model.encoder = torch.nn.Embedding(7, 4)
    model.encoder.weight = model.shared.weight
    model.query, model.key = (torch.nn.Linear(4, 4) for _ in range(2))
    model.head = torch.nn.Linear(4, 7, bias=False)
    model.head.weight = model.shared.weight
    assert named(saved(model)) == ["shared.weight", "query.weight", "query.bias", "key.weight", "key.bias"]


def test_a_name_that_is_given_twice_is_refused() -> None:
    tree = saved(Module({"zz": (4,), "yy": (4,)}))
    with pytest.raises(CheckpointError, match="gives zz twice"):
        to_jax(tree, Options(names=["zz", "zz"]), Ledger())
    tree["optimizer"]["param_groups"][0]["param_names"] = ["yy", "yy"]
    with pytest.raises(CheckpointError, match="param_names gives yy twice"):
        to_jax(tree, Options(), Ledger())


def test_a_parameter_called_as_an_extra_state_is_not_passed_over() -> None:
    tree = saved(Module({"zz": (4,), "_extra_state": (4,), "aa": (4,)}, ["aa"]))
    with pytest.raises(CheckpointError, match=r"may have parameters of model\._extra_state too.*--names FILE"):
        named(tree)
    tree = saved(Module({"zz": (4,), "aa": (4,)}))
    tree["model"]["_extra_state"] = lazy(torch.ones(4, dtype=torch.uint8))  # as modules of Transformer Engine keep it
    assert named(tree) == ["zz", "aa"]
