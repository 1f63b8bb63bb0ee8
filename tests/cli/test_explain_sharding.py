"""`parity train --explain-sharding`: what is printed is what lies on the devices, and nothing is trained."""

import json
from types import SimpleNamespace

import pytest
from flax import nnx

import jax_side
from jax_side.state import neutral_parts
from parity.cli import main
from parity.spec import load

SMALL = ["model.hidden=[16, 8]", "mesh.fsdp=2", "mesh.model=2"]


def explained(capsys, home, *words, overrides=SMALL, spec="mlp-digits"):
    given = [word for override in overrides for word in ("--set", override)]
    run = str(home / "run")
    code = main(["train", "--side", "jax", "--spec", spec, "--dir", run, *given, "--explain-sharding", *words])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    assert not (home / "run").exists()
    return out


@pytest.mark.takes_seconds
@pytest.mark.parametrize(
    ("spec", "overrides"),
    [
        ("mlp-digits", SMALL),
        ("mlp-digits", [*SMALL, "optimizer.kind=adafactor"]),
        ("cnn-digits", ["model.channels=[4, 8]", "mesh.fsdp=2", "mesh.model=2"]),
    ],
)
def test_the_bytes_are_those_on_each_device(spec, overrides, tmp_path, capsys):
    found = json.loads(explained(capsys, tmp_path, "--json", spec=spec, overrides=overrides))
    trainer = jax_side.build(load(spec, None, overrides))
    held = {}
    for group, rows, part in neutral_parts(trainer.layout, trainer.state):
        values = {tuple(path): leaf.get_value() for path, leaf in nnx.to_flat_state(part)}
        for row in rows:
            value = values[row.jax]
            held[f"{group}.{row.name}"] = (value.nbytes, {shard.data.nbytes for shard in value.addressable_shards})
    assert {one["leaf"]: (one["bytes"], {one["bytes_per_device"]}) for one in found["leaves"]} == held
    assert (found["devices"], found["mesh"]) == (4, {"data": 1, "fsdp": 2, "model": 2})
    assert found["bytes"] == sum(size for size, _ in held.values())


def test_each_leaf_has_a_line_with_its_axes(tmp_path, capsys):
    lines = explained(capsys, tmp_path).splitlines()
    assert lines[0] == "mesh of 4 devices: data 1, fsdp 2, model 2"
    (row,) = [line.split("  ") for line in lines if line.startswith("model.params.layers.0.weight ")]
    cells = [cell.strip() for cell in row if cell.strip()]
    assert cells == ["model.params.layers.0.weight", "16 x 64", "hidden, features", "model, fsdp", "4,096", "1,024"]
    assert lines[-1].endswith("on each device (28% of the state)")


def test_one_device_holds_all(tmp_path, capsys):
    found = json.loads(explained(capsys, tmp_path, "--json", overrides=()))
    assert found["devices"] == 1
    assert all(one["bytes"] == one["bytes_per_device"] and not any(one["split"]) for one in found["leaves"])


def test_json_alone_is_refused(tmp_path, capsys):
    command = ["train", "--side", "jax", "--spec", "mlp-digits", "--dir", str(tmp_path / "run"), "--json"]
    assert main(command) == 2
    assert "--json: is of --explain-sharding; records of a run are in RUN/steps.jsonl" in capsys.readouterr().err


def test_the_pytorch_side_says_what_it_splits_otherwise(tmp_path, capsys):
    """Rows go along fsdp, where JAX follows the table; what is held is compared in the soak tests of ranks."""
    command = ["train", "--side", "torch", "--spec", "gpt-text", "--dir", str(tmp_path / "run"), "--explain-sharding"]
    assert main([*command, "--json", "--set", "mesh.fsdp=2", "--set", "mesh.model=2"]) == 0
    found = {one["leaf"]: one["split"] for one in json.loads(capsys.readouterr().out)["leaves"]}
    assert found["model.params.blocks.0.up.weight"] == [["model", "fsdp"], []]
    assert found["model.params.blocks.0.down.weight"] == [["fsdp"], ["model"]]
    assert found["model.params.blocks.0.down.bias"] == found["model.params.norm.weight"] == [["fsdp"]]
    assert found["optimizer.first_moment.tokens.weight"] == [["fsdp"], []]


def test_a_side_without_shardings_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("parity.sides.load", lambda name: SimpleNamespace(build=None, topology=None))
    command = ["train", "--side", "torch", "--spec", "mlp-digits", "--dir", str(tmp_path / "run")]
    assert main([*command, "--explain-sharding"]) == 2
    assert "the side 'torch' has no shardings to explain" in capsys.readouterr().err
