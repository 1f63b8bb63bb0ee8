"""Where two models part: each planted fault is found in its module, and its cause is named where a table knows it."""

import json

import pytest

from parity.checks.models import find_parting, map_models
from parity.cli import main
from parity.errors import SpecError
from tests.ports.corpus import mixed_nnx, mixed_torch, small

BOTH = {"torch": mixed_torch.Model, "jax": mixed_nnx.Model, "inputs": mixed_torch.inputs}

ATTENTION = ("input", "block.attn.proj")

FAULTS = {
    "layer norm epsilon": ("output", "block.norm1", "LayerNorm: eps 1e-05 here, epsilon 1e-06 there"),
    "unbiased variance": ("output", "block.norm1", "variance: biased in one, unbiased in the other"),
    "rms epsilon": ("output", "block.norm2", "RMSNorm: eps 1e-06 here, epsilon 1e-05 there"),
    "rms offset": ("output", "block.norm2", "RMSNorm: the scale is one plus the parameter there"),
    "batch norm epsilon": ("output", "bn", "BatchNorm2d and BatchNorm: eps 1e-05 here, epsilon 0.001 there"),
    "padding same": ("output", "conv", "Conv2d and Conv: padding (1, 1) here, padding 'SAME' there"),
    "gelu tanh": ("input", "block.mlp.down", "activation: GELU (erf) here, GELU (tanh) there"),
    "quick gelu": ("input", "block.mlp.down", "activation: GELU (erf) here, GELU (sigmoid of 1.702 x) there"),
    "relu for gelu": ("input", "block.mlp.down", "activation: GELU (erf) here, ReLU there"),
    "silu for gelu": ("input", "block.mlp.down", "activation: GELU (erf) here, SiLU there"),
    "no scale": (*ATTENTION, "attention: scale of the scores 1/sqrt(4) here, none there"),
    "scale of all heads": (*ATTENTION, "attention: scale of the scores 1/sqrt(4) here, 1/sqrt(8) there"),
    "no causal mask": (*ATTENTION, "attention: causal mask here, none there"),
    "softmax axis": (*ATTENTION, "attention: softmax over keys here, over queries there"),
    "q and k exchanged": (*ATTENTION, "attention: q and k exchanged"),
    "heads in another order": (*ATTENTION, "attention: heads joined head by head here, interleaved there"),
    "norm after": ("input", "block.norm1", "order: block.norm1 before block.attn here, after it there"),
    "residual missing": (
        "output", "block",
        "residual: the sum with the output of block.mlp has the input of block.norm2 once here, not at all there",
    ),
    "columns before rows": (
        "input", "block.norm1",
        "layout: the output of bn [2, 4, 4, 8] in the order of axes 0, 1, 2, 3 here, 0, 2, 1, 3 there",
    ),
    "embedding scaled": (
        "input", "block.norm1",
        "factor: there 2.82842712 times what is here (the square root of 8, the last axis)",
    ),
    "pooling of the last": ("input", "head", "pooling: of the output of norm the mean here, the last there"),
    "gradient stopped": (
        "gradient", "block.mlp.up",
        "the outputs agree and gradients do not: a gradient is stopped, clipped or scaled on the way back",
    ),
}  # fmt: skip
"""Fault to what parts first, the module of PyTorch, and the likely cause."""

QUICK = ("layer norm epsilon", "gelu tanh", "no causal mask", "gradient stopped")


@pytest.fixture(scope="module")
def rules():
    found = map_models(**BOTH)
    assert found.verdict == "holds", found.text()
    return found.rules


@pytest.mark.parametrize("fault", [f if f in QUICK else pytest.param(f, marks=pytest.mark.soak) for f in FAULTS])
def test_a_fault_is_found_where_it_is(rules, fault):
    what, module, cause = FAULTS[fault]
    found = find_parting(**BOTH, jax_args={"fault": fault}, rules=rules)
    assert found.verdict == "broken", found.text()
    assert (found.what, found.modules[0]) == (what, module), found.text()
    assert found.cause == cause  # this cause and no other
    assert found.gap > 1e-12
    assert found.first != found.second


def test_a_right_port_parts_nowhere(rules):
    found = find_parting(**BOTH, rules=rules)
    assert found.verdict == "holds", found.text()
    assert found.compared >= 10


def test_a_momentum_that_evaluation_does_not_show_is_named_and_not_called_equal(rules):
    found = find_parting(**BOTH, jax_args={"fault": "batch norm momentum"}, rules=rules)
    assert found.verdict == "inconclusive"
    assert "momentum 0.1 here, momentum 0.99 there" in found.text()


def test_the_users_modules_are_as_they_were(rules):
    before = mixed_nnx.Mlp.__call__, mixed_nnx.Model.__call__
    model = mixed_torch.Model()
    find_parting(torch=lambda: model, jax=mixed_nnx.Model, inputs=mixed_torch.inputs, rules=rules)
    assert (mixed_nnx.Mlp.__call__, mixed_nnx.Model.__call__) == before
    assert not any(module._forward_hooks for module in model.modules())


def test_rules_that_lack_a_leaf_are_refused(rules):
    with pytest.raises(SpecError, match="rules: "):
        find_parting(**BOTH, rules=[rule for rule in rules if rule.source != ("conv.weight",)])


def test_a_map_that_is_not_sure_is_not_walked_by():
    found = find_parting(torch=small.Twice, jax=small.twice, inputs="f[4,3]")
    assert found.verdict == "inconclusive"
    assert "give --rules" in found.text()


def test_the_command_prints_json(capsys, tmp_path):
    (tmp_path / "map.toml").write_text('[[rule]]\ntorch = "last.weight"\njax = "last.weight"\n')
    words = ["where", "--json", "--inputs", "f[4,3]", "--rules", str(tmp_path / "map.toml")]
    for name in ("Model", "Bent"):
        words += ["--torch", f"tests.ports.corpus.small:{name}"]
    assert main(words) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["modules"] == ["last", "last"]
    assert found["what"] == "input"
