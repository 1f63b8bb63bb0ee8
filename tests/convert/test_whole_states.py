"""What an optimizer's state lacks, or JAX cannot count, is refused; a class that nothing decides is said."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parity.cli import main
from parity.convert import Ledger, Options, compare_sources, open_any, to_jax
from parity.errors import CheckpointError
from parity.formats import number_of
from tests.convert.test_naming import lazy

O = torch.optim  # noqa: E741
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "AdamW": (O.AdamW, {}),
    "Adam": (O.Adam, {"amsgrad": True}),
    "NAdam": (O.NAdam, {}),
    "RAdam": (O.RAdam, {}),
    "Adamax": (O.Adamax, {}),
    "RMSprop": (O.RMSprop, {"momentum": 0.9, "centered": True}),
    "Adagrad": (O.Adagrad, {}),
    "Adadelta": (O.Adadelta, {}),
    "Rprop": (O.Rprop, {}),
    "ASGD": (O.ASGD, {}),
    "Adafactor": (O.Adafactor, {}),
}


def saved(kind: Any, dtype: torch.dtype = torch.float32, **arguments: Any) -> dict[str, Any]:
    """Return a state after two steps, as it is saved."""
    torch.manual_seed(0)
    own = {"w": torch.nn.Parameter(torch.randn(3, 2, dtype=dtype)), "b": torch.nn.Parameter(torch.randn(5))}
    optimizer = kind(list(own.values()), **{"lr": 0.1, **arguments})
    for _ in range(2):
        for p in own.values():
            p.grad = torch.randn_like(p)
        optimizer.step()
    return {"model": own, "optimizer": copy.deepcopy(optimizer.state_dict()), "step": 2}


def made(tree: dict[str, Any], **options: Any) -> tuple[dict[str, Any], Ledger]:
    ledger = Ledger()
    return to_jax(lazy(tree), Options(**options), ledger, ordered=True), ledger


@pytest.mark.parametrize("name", KINDS)
def test_a_value_that_is_missing_is_not_made_up(name: str) -> None:
    kind, arguments = KINDS[name]
    whole = saved(kind, **arguments)
    made(whole)
    for key in whole["optimizer"]["state"][0]:
        for change in (lambda entry, key: entry.pop(key), lambda entry, key: entry.update({key: None})):
            tree = copy.deepcopy(whole)
            change(tree["optimizer"]["state"][0], key)
            with pytest.raises(CheckpointError, match=rf"state.0, of w, has no {key}, which {name} keeps.*--reset"):
                made(tree)
    fresh = copy.deepcopy(whole)
    del fresh["optimizer"]["state"][0]  # never updated, as PyTorch has it
    made(fresh)


@pytest.mark.parametrize(
    ("kind", "flag", "key"),
    [(O.Adam, "amsgrad", "max_exp_avg_sq"), (O.RMSprop, "centered", "grad_avg"),
     (O.RMSprop, "momentum", "momentum_buffer")],
)  # fmt: skip
def test_an_argument_that_was_switched_on_has_no_values(kind: Any, flag: str, key: str) -> None:
    tree = saved(kind)
    tree["optimizer"]["param_groups"][0][flag] = True if flag != "momentum" else 0.9
    with pytest.raises(CheckpointError, match=rf"has no {key}, which .* keeps with {flag}="):
        made(tree)


def test_a_momentum_that_never_began_begins_as_in_pytorch_and_comes_back(tmp_path: Path) -> None:
    tree = saved(O.SGD, momentum=0.9, dampening=0.5)
    tree["optimizer"]["state"][0] = {"momentum_buffer": None}
    got, _ = made(tree)
    assert got["opt_state"]["step"].load().tolist() == [1, 0]  # b, w
    torch.save(tree, tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax"]) == 0
    assert main(["convert", str(tmp_path / "o"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 0
    assert compare_sources(open_any(tmp_path / "a.pt"), open_any(tmp_path / "b.pt")).same


@pytest.mark.parametrize(
    ("step", "said"),
    [(torch.tensor(2.0**40), "JAX counts them in int32"), (2**31, "JAX counts them in int32"),
     (torch.tensor([2.0]), r"has .*\[1\] as step, expected a number without a shape")],
)  # fmt: skip
def test_a_count_that_jax_cannot_have_is_refused(step: Any, said: str) -> None:
    tree = saved(O.AdamW)
    for entry in tree["optimizer"]["state"].values():
        entry["step"] = step
    with pytest.raises(CheckpointError, match=said):
        made(tree)


@pytest.mark.parametrize("to", ["safetensors", "orbax"])
def test_a_step_that_no_seal_holds_is_kept_and_the_seal_is_whole(tmp_path: Path, to: str) -> None:
    for step in (2**62 - 1, 2**62):
        source, target = tmp_path / f"{step}.pt", tmp_path / f"{step}"
        torch.save({"model": {"w": torch.ones(2)}, "step": step}, source)
        assert main(["convert", str(source), str(target), "--to", to]) == 0
        assert main(["verify", str(target)]) == 0
        assert number_of(open_any(target).tree["step"]) == step


def test_a_complex_parameter_has_other_squares() -> None:
    with pytest.raises(CheckpointError, match="of w, is of a complex parameter"):
        made(saved(O.AdamW, torch.complex64))
    got, _ = made(saved(O.SGD, torch.complex64, momentum=0.9))  # a mean of gradients is one in both
    assert got["opt_state"][0]["trace"]["w"].dtype == np.complex64


def old(change: Callable[[dict[str, Any]], Any], kind: Any = O.AdamW, **arguments: Any) -> dict[str, Any]:
    tree = saved(kind, **arguments)
    for group in tree["optimizer"]["param_groups"]:
        change(group)
    return tree


def test_adam_or_adamw_that_nothing_decides_is_said() -> None:
    tree = old(lambda group: group.pop("decoupled_weight_decay"), weight_decay=0.1)
    _, ledger = made(tree)
    assert [note for note in ledger.notes if "is of Adam or of AdamW" in note and "--class AdamW" in note]
    got, ledger = made(tree, kind="AdamW")
    assert isinstance(got["opt_state"], list)
    assert not any("Adam" in note for note in ledger.notes)
    alike = old(lambda group: group.pop("decoupled_weight_decay"), weight_decay=0.0)
    assert not any("Adam" in note for note in made(alike)[1].notes)


def test_a_class_that_the_groups_contradict_is_refused() -> None:
    with pytest.raises(CheckpointError, match="AdamW is stated, and its groups have decoupled_weight_decay=False"):
        made(saved(O.Adam, weight_decay=0.1), kind="AdamW")
    got, _ = made(saved(O.Adam, weight_decay=0.1, decoupled_weight_decay=True), kind="Adam")
    assert isinstance(got["opt_state"], list)  # of adamw, whose steps it takes


def test_a_class_that_is_taken_by_what_it_keeps_is_said() -> None:
    """The state of somebody's LAMB is as that of RAdam."""
    keys = ("foreach", "maximize", "capturable", "differentiable", "decoupled_weight_decay", "amsgrad", "fused")
    tree = old(lambda group: [group.pop(key, None) for key in keys])
    notes = made(tree)[1].notes
    assert any("is taken for RAdam by what it keeps, though its groups lack maximize" in note for note in notes)
    assert not any("taken for" in note for note in made(tree, kind="RAdam")[1].notes)
    assert not any("taken for" in note for note in made(saved(O.RAdam))[1].notes)


def test_a_target_within_the_checkpoint_is_refused(tmp_path: Path) -> None:
    torch.save({"model": {"w": torch.ones(2)}}, tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax"]) == 0
    assert main(["convert", str(tmp_path / "o"), str(tmp_path / "o" / "in"), "--to", "orbax"]) == 2
    assert main(["verify", str(tmp_path / "o")]) == 0
    assert main(["convert", str(tmp_path / "o"), str(tmp_path / "beside"), "--to", "orbax"]) == 0


@pytest.mark.parametrize(("key", "code"), [("a/b", 0), ("~1", 0), ("a.b", 0), ("~", 1)])
def test_orbax_reads_a_text_under_any_key_that_it_writes_itself(tmp_path: Path, key: str, code: int) -> None:
    import orbax.checkpoint as ocp
    from flax import serialization

    tree = {"p": {key: "text", "arr": np.ones(2)}}
    (tmp_path / "s").write_bytes(serialization.msgpack_serialize(tree))
    assert main(["convert", str(tmp_path / "s"), str(tmp_path / "d"), "--to", "orbax"]) == code
    if not code:
        assert ocp.PyTreeCheckpointer().restore(tmp_path / "d")["p"][key] == "text"
        ocp.PyTreeCheckpointer().save(tmp_path / "theirs", tree)
        for name in ("d", "theirs"):
            assert open_any(tmp_path / name).tree["p"][key] == "text"


@pytest.mark.parametrize(("kind", "flag"), [(O.SGD, "maximize"), (O.SGD, "dampening"), (O.AdamW, "maximize")])
def test_a_state_of_optax_does_not_go_where_pytorch_takes_other_steps(tmp_path: Path, kind: Any, flag: str) -> None:
    arguments = {"momentum": 0.9} if kind is O.SGD else {}
    torch.save(saved(kind, **arguments), tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax"]) == 0
    other = saved(kind, **arguments)
    for value, code in ((0.5 if flag == "dampening" else True, 2), (0 if flag == "dampening" else False, 0)):
        other["optimizer"]["param_groups"][0][flag] = value
        torch.save(other, tmp_path / f"like{code}.pt")
        words = ["convert", str(tmp_path / "o"), str(tmp_path / f"b{code}.pt"), "--to", "torch.save"]
        assert main([*words, "--like", str(tmp_path / f"like{code}.pt")]) == code
