"""Separate projections of separate layers against leaves that are fused and stacked at once: rows, proof, faults."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import parity
from parity.cli.main import main
from parity.convert import open_any
from parity.mapping import read_rules

WIDTH, HEADS, LAYERS, HIDDEN = 6, 2, 3, 10


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        q, k, v = (one(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in (self.q, self.k, self.v))
        x = x + self.o(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))
        return x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.h:
            x = layer(x)
        return x


def port(along=0, by_heads=False, swapped=False):
    """Return parameters whose layers lie along an axis, and a function of them that scans over the layers."""
    draws = np.random.default_rng(0)
    shapes = {"qkv": (WIDTH, 3 * WIDTH), "b": (3 * WIDTH,), "o": (WIDTH, WIDTH), "ob": (WIDTH,),
              "wide": (WIDTH, 2 * HIDDEN), "wb": (2 * HIDDEN,), "down": (HIDDEN, WIDTH), "db": (WIDTH,)}  # fmt: skip
    place = {name: min(along, len(shape)) for name, shape in shapes.items()}
    params = {
        name: jnp.asarray(np.stack([draws.normal(size=shape) * 0.3 for _ in range(LAYERS)], place[name]))
        for name, shape in shapes.items()
    }

    def parts(x):
        if by_heads:  # each head has its q, k and v beside one another
            return [one.swapaxes(1, 2) for one in jnp.moveaxis(x.reshape(*x.shape[:-1], HEADS, 3, -1), -2, 0)]
        return [one.reshape(*one.shape[:-1], HEADS, -1).swapaxes(1, 2) for one in jnp.split(x, 3, -1)]

    def apply(params, x):
        def layer(x, p):
            q, k, v = parts(x @ p["qkv"] + p["b"])
            weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / np.sqrt(WIDTH // HEADS), -1)
            x = x + (weights @ v).swapaxes(1, 2).reshape(x.shape) @ p["o"] + p["ob"]
            gate, up = jnp.split(x @ p["wide"] + p["wb"], 2, -1)
            gate, up = (up, gate) if swapped else (gate, up)
            return x + (jax.nn.silu(gate) * up) @ p["down"] + p["db"], None

        stacked = {name: jnp.moveaxis(value, place[name], 0) for name, value in params.items()}
        return jax.lax.scan(layer, x, stacked)[0]

    return params, apply


@cache
def mapped(**how):
    return parity.map_models(torch=Model, jax=lambda: port(**how), inputs=["f[2,4,6]"])


STYLES = {
    "layers first": {},
    "layers between": {"along": 1},
    "layers last": {"along": 2},
    "up first": {"swapped": True},
    "head by head": {"by_heads": True},
}


@pytest.mark.parametrize(
    "style", [name if name == "layers first" else pytest.param(name, marks=pytest.mark.soak) for name in STYLES]
)
def test_separate_layers_and_leaves_that_are_stacked_and_fused_are_mapped_and_proven(style, tmp_path):
    found = mapped(**STYLES[style])
    assert found.verdict == "holds", found.text()
    rows = {row.second: row for row in found.found.rows}
    assert all(row.sure for row in rows.values())
    fused = rows[("qkv",)].rule
    assert fused.source == ("h.*.q.weight", "h.*.k.weight", "h.*.v.weight")
    wide = rows[("wide",)].rule.source
    first = "up" if style == "up first" else "gate"
    assert wide[0] == f"h.*.{first}.weight"
    (tmp_path / "map.toml").write_text(found.rules_text)
    placements = read_rules(tmp_path / "map.toml").place([name for name, _ in Model().named_parameters()])
    [placement] = [one for one in placements if one.target == ("qkv",)]
    assert placement.source[:4] == ("h.0.q.weight", "h.0.k.weight", "h.0.v.weight", "h.1.q.weight")


def test_rules_that_take_the_parts_in_another_order_are_refused_by_the_proof(tmp_path):
    found = mapped()
    text = found.rules_text
    for a, b in (("h.*.k.weight", "h.*.v.weight"), ("join = 0\nstack = 0", "join = 0\nstack = 1")):
        assert a in text
        wrong = text.replace(a, "@").replace(b, a).replace("@", b) if "h." in a else text.replace(a, b, 1)
        path = tmp_path / f"{len(wrong)}{len(a)}.toml"
        path.write_text(wrong)
        proof = parity.map_models(torch=Model, jax=lambda: port(), inputs=["f[2,4,6]"], rules=path)
        assert proof.verdict == "broken", proof.text()


def test_a_training_state_crosses_by_such_rows_and_comes_back_bit_for_bit(tmp_path, capsys):
    (tmp_path / "map.toml").write_text(mapped().rules_text)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 4, WIDTH)).square().sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}, tmp_path / "a.pt")
    rules = ["--rules", str(tmp_path / "map.toml")]
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "run"), "--to", "orbax", *rules]) == 0
    held = open_any(tmp_path / "run").tree
    for name in ("mu", "nu"):
        slot = "exp_avg" if name == "mu" else "exp_avg_sq"
        parts = [optimizer.state[getattr(model.h[2], one).weight][slot].numpy().T for one in "qkv"]
        assert np.array_equal(held["opt_state"][0][name]["qkv"].load()[2], np.concatenate(parts, 1))
    assert main(["convert", str(tmp_path / "run"), str(tmp_path / "b.pt"), "--to", "torch.save", *rules]) == 0
    one, two = (torch.load(tmp_path / name, weights_only=True) for name in ("a.pt", "b.pt"))
    assert all(torch.equal(value, two["model"][name]) for name, value in one["model"].items())
    for at, slots in one["optimizer"]["state"].items():
        assert all(torch.equal(value, two["optimizer"]["state"][at][name]) for name, value in slots.items())
    assert main(["compare", str(tmp_path / "a.pt"), str(tmp_path / "run")]) == 0
