"""Checkpoints of other tools and of conversions come back into a template, bit for bit, sealed or said to be not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.serialization
import flax.training.checkpoints
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import torch
from flax import nnx
from safetensors.torch import save_file

import jax_side
import torch_side
from parity.cli import main
from parity.errors import CheckpointError, DamagedError, UnknownNameError
from tests.support.sealed import flip
from tests.support.tree_states import same


def tree(seed: int = 0) -> dict[str, Any]:
    """Return a state as a JAX program has one; its optimizer ends in a named tuple without fields."""
    draws = np.random.default_rng(seed)
    params = {
        "w": jnp.asarray(draws.normal(size=(2, 3)), jnp.float32),
        "b": jnp.asarray(draws.normal(size=3), jnp.bfloat16),
    }
    return {"params": params, "step": 7 + seed, "opt": optax.adam(1e-3).init(params)}


def by_flax_directory(home: Path) -> Path:
    flax.training.checkpoints.save_checkpoint(str(home), tree(), 3)
    return home


def by_manager(home: Path) -> Path:
    with ocp.CheckpointManager(home) as manager:
        manager.save(5, args=ocp.args.StandardSave(tree()))
    return home / "5"


def by_msgpack(home: Path) -> Path:
    path = home.with_suffix(".msgpack")
    path.write_bytes(flax.serialization.to_bytes(jax.device_get(tree())))
    return path


def by_orbax(home: Path) -> Path:
    ocp.PyTreeCheckpointer().save(home, tree())
    return home


JAX_WRITERS = (by_orbax, by_manager, by_flax_directory, by_msgpack)


@pytest.mark.takes_seconds("by_orbax")
@pytest.mark.parametrize("write", JAX_WRITERS)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_files_of_jax_come_back_into_a_template_and_say_that_they_have_no_seal(write: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "c")
    found = jax_side.restore(path, like=tree(1))
    assert same(found.tree, tree()) == []
    assert (found.extra, found.filled) == ((), ())
    assert "has no seal" in found.unproven
    raw = jax_side.restore(path).tree
    assert raw["params"]["w"].tobytes() == np.asarray(tree()["params"]["w"]).tobytes()
    with pytest.raises(CheckpointError, match=r"params\.w: is float32\[2,3\] in the checkpoint, and float32\[3,2\]"):
        jax_side.restore(path, like={**tree(), "params": {**tree()["params"], "w": jnp.zeros((3, 2))}})


def trained() -> dict[str, Any]:
    model = torch.nn.Linear(4, 3).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.ones(1, 4).bfloat16()).sum().backward()
    optimizer.step()
    return {"model": model, "optimizer": optimizer, "step": 7}


def fresh() -> dict[str, Any]:
    model = torch.nn.Linear(4, 3).bfloat16()
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "step": 0}


def states(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "model": value["model"].state_dict(), "optimizer": value["optimizer"].state_dict()}


def test_a_file_of_torch_and_its_conversions_come_back_into_objects(tmp_path: Path) -> None:
    saved = states(trained())
    torch.save(saved, tmp_path / "a.pt")
    for steps in ([], ["orbax", "torch.save"], ["flax-msgpack"], ["safetensors"]):
        path = tmp_path / "a.pt"
        for name in steps:
            source, path = path, tmp_path / f"{'-'.join(steps)}-{name}"
            assert main(["convert", str(source), str(path), "--to", name]) == 0
        if steps and path.name.endswith("flax-msgpack"):
            continue  # of JAX: below
        like = fresh()
        found = torch_side.restore(path, like=like)
        assert same(states(found.tree), saved) == []
        assert found.tree["model"] is like["model"]
        assert bool(found.unproven) is not bool(steps), "a conversion of ours has a seal"


def test_a_conversion_to_jax_comes_back_without_what_it_keeps_for_pytorch(tmp_path: Path) -> None:
    """Orbax and MessagePack; the moments are Optax's."""
    saved = states(trained())
    torch.save(saved, tmp_path / "a.pt")
    params = {"weight": jax.ShapeDtypeStruct((3, 4), jnp.bfloat16), "bias": jax.ShapeDtypeStruct((3,), jnp.bfloat16)}
    for name in ("orbax", "flax-msgpack"):
        assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / name), "--to", name]) == 0
        like = {"params": params, "opt_state": jax.eval_shape(optax.adamw(1e-3).init, params), "step": 0}
        found = jax_side.restore(tmp_path / name, like=like)
        assert (found.extra, found.unproven) == (("torch",), "")
        weight = np.asarray(found.tree["params"]["weight"])
        assert weight.tobytes() == saved["model"]["weight"].view(torch.int16).numpy().tobytes()
        assert int(found.tree["opt_state"][0].count) == 1


def test_a_safetensors_file_fills_a_module_of_either_side(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 3)
    save_file(model.state_dict(), tmp_path / "m.safetensors")
    other = torch.nn.Linear(4, 3)
    torch_side.restore(tmp_path / "m.safetensors", like=other)
    assert torch.equal(model.weight, other.weight)
    rules = [jax_side.Rule("weight", "kernel.value", permute=(1, 0)), jax_side.Rule("bias", "bias.value")]
    found = jax_side.restore(
        tmp_path / "m.safetensors", like=nnx.eval_shape(lambda: nnx.Linear(4, 3, rngs=nnx.Rngs(0))), rules=rules
    )
    np.testing.assert_array_equal(found.tree.kernel[...], model.weight.detach().numpy().T)


@pytest.mark.takes_seconds
def test_a_typed_key_of_orbax_is_a_key_of_its_own_implementation(tmp_path: Path) -> None:
    saved = {"a": jax.random.split(jax.random.key(3, impl="rbg"), 2), "b": jax.random.key(4)}
    ocp.PyTreeCheckpointer().save(tmp_path / "c", saved)
    for like in (None, {"a": jax.random.split(jax.random.key(0, impl="rbg"), 2), "b": jax.random.key(0)}):
        assert same(jax_side.restore(tmp_path / "c", like=like).tree, saved) == []
    with pytest.raises(CheckpointError, match=r"a: is PRNG key rbg\[2\] .*, and PRNG key unsafe_rbg\[2\] in"):
        jax_side.restore(
            tmp_path / "c", like={**saved, "a": jax.random.split(jax.random.key(0, impl="unsafe_rbg"), 2)}
        )


def flip_in_the_middle(path: Path) -> None:
    flip(path, path.stat().st_size // 2)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def test_a_sealed_conversion_that_was_changed_is_damaged(tmp_path: Path) -> None:
    torch.save(states(trained()), tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 0
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "c"), "--to", "orbax"]) == 0
    flip_in_the_middle(tmp_path / "b.pt")
    with pytest.raises(DamagedError, match=r"b\.pt is not what was sealed"):
        torch_side.restore(tmp_path / "b.pt")
    flip_in_the_middle(tmp_path / "c" / "_METADATA")
    with pytest.raises(DamagedError, match=r"c is not what was sealed"):
        jax_side.restore(tmp_path / "c")


class Mine:
    """A class that only code could rebuild."""


BAD: list[tuple[str, Callable[[Path], Any], str]] = [
    ("cut", lambda p: torch.save({"w": torch.ones(9)}, p) or cut(p), r"x: |x is "),
    ("flipped", lambda p: torch.save({"w": torch.ones(5000)}, p) or flip_in_the_middle(p), r"is damaged:\n  .*CRC"),
    ("text", lambda p: p.write_text("something else"), r"x: there is no checkpoint; it is a file that starts with"),
    ("empty", lambda p: p.touch(), r"x: there is no checkpoint; it is an empty file"),
    ("an object", lambda p: torch.save({"a": Mine()}, p), r"allow_extra=True.*\n  a: is an object of .*Mine"),
    ("folder", lambda p: p.mkdir(), r"empty directory: it has no seal"),
    (
        "something",
        lambda p: p.mkdir() or (p / "a.txt").touch(),
        r"there is no checkpoint; it is a directory with a.txt",
    ),
    ("steps", lambda p: (p / "checkpoints").mkdir(parents=True), r"holds checkpoints of several steps: give that of"),
    (
        "ours, without its seal",
        lambda p: torch_side.save(p, [1]) or (p / "seal.json").unlink(),
        r"x has no seal: seal",
    ),
    ("link to nothing", lambda p: p.symlink_to("gone"), r"x"),
]


@pytest.mark.parametrize(("make", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_what_is_no_whole_checkpoint_is_one_clear_error(make: Any, message: str, tmp_path: Path) -> None:
    make(tmp_path / "x")
    for side in (torch_side, jax_side):
        with pytest.raises(CheckpointError, match=message):
            side.restore(tmp_path / "x")


def test_an_object_is_left_out_where_the_template_does(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    torch.save({"model": model.state_dict(), "args": Mine()}, tmp_path / "x.pt")
    found = torch_side.restore(tmp_path / "x.pt", like={"model": torch.nn.Linear(2, 2)}, allow_extra=True)
    assert found.extra == ("args",)
    assert torch.equal(found.tree["model"].weight, model.weight)


# What a template's arrays count for


@pytest.mark.parametrize("side", [jax_side, torch_side])
def test_a_small_array_stands_for_a_large_one_where_only_its_place_counts(side: Any, tmp_path: Path) -> None:
    zeros = (lambda *n: jnp.zeros(n)) if side is jax_side else torch.zeros
    side.save(tmp_path / "x", {"w": zeros(4, 6), "n": 3})
    with pytest.raises(CheckpointError, match=r"w: is float32\[4,6\] in the checkpoint, and float32\[1\] in"):
        side.restore(tmp_path / "x", like={"w": zeros(1), "n": 0})
    found = side.restore(tmp_path / "x", like={"w": zeros(1), "n": 0}, reference="sharding")
    assert same(found.tree, {"w": zeros(4, 6), "n": 3}) == []
    with pytest.raises(CheckpointError, match=r"need a template: give like="):
        side.restore(tmp_path / "x", reference="sharding")
    with pytest.raises(UnknownNameError, match=r"unknown reference 'shardin'"):
        side.restore(tmp_path / "x", like={}, reference="shardin")
    rules = [side.Rule("w", "v", permute=(1, 0))]
    found = side.restore(tmp_path / "x", like={"v": zeros(1), "n": 0}, rules=rules, reference="sharding")
    assert found.tree["v"].shape == (6, 4)


def test_the_leaves_of_a_module_of_pytorch_stay_exact(tmp_path: Path) -> None:
    torch_side.save(tmp_path / "x", torch.nn.Linear(4, 3))
    with pytest.raises(CheckpointError, match=r"weight: is float32\[3,4\] in the checkpoint, and float32\[3,5\] in"):
        torch_side.restore(tmp_path / "x", like=torch.nn.Linear(5, 3), reference="sharding")


def module() -> nnx.Linear:
    init = nnx.with_partitioning(nnx.initializers.lecun_normal(), (None, "x"))
    return nnx.Linear(4, 6, rngs=nnx.Rngs(0), kernel_init=init)


@pytest.mark.takes_seconds
def test_an_abstract_mesh_is_that_of_the_context_or_an_error_that_names_the_remedy(tmp_path: Path) -> None:
    mesh = jax.make_mesh((1,), ("x",))
    with jax.set_mesh(mesh):
        jax_side.save(tmp_path / "x", module())
        like = nnx.eval_shape(module)
        restored = jax_side.restore(tmp_path / "x", like=like).tree
        small = jax_side.restore(tmp_path / "x", like=like, reference="sharding").tree
    for found in (restored, small):
        assert found.kernel.get_value().sharding == jax.sharding.NamedSharding(mesh, jax.P(None, "x"))
    remedy = r"kernel\.value: has a sharding over an abstract mesh of the axes x=1, and {}: .*nnx\.get_abstract_model"
    with pytest.raises(CheckpointError, match=remedy.format("no mesh is set here")):
        jax_side.restore(tmp_path / "x", like=like)
    with (
        jax.set_mesh(jax.make_mesh((1,), ("y",))),
        pytest.raises(CheckpointError, match=remedy.format("the mesh that is set has the axes y=1")),
    ):
        jax_side.restore(tmp_path / "x", like=like)
    _, state = nnx.get_abstract_model(module, mesh)
    by_name = jax_side.restore(tmp_path / "x", like=state).tree
    assert by_name["kernel"].get_value().sharding == jax.sharding.NamedSharding(mesh, jax.P(None, "x"))


def test_an_axis_that_a_sharding_does_not_divide_is_named(tmp_path: Path) -> None:
    sharding = jax.sharding.NamedSharding(jax.make_mesh((1,), ("x",)), jax.P(None, "x"))
    jax_side.save(tmp_path / "x", {"w": jnp.zeros(3)})
    small = jax.device_put(jnp.zeros((1, 1)), sharding)
    with pytest.raises(CheckpointError, match=r"w: \[3\] cannot lie as the sharding of the template says"):
        jax_side.restore(tmp_path / "x", like={"w": small}, reference="sharding")
