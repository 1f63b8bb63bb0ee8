"""The map of two models: proposed by what leaves do, in any style of the port, under any names, and proven."""

import re
import tomllib

import jax
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn

from parity.checks.models import map_models
from parity.checks.models.draws import symmetric
from parity.errors import CheckpointError, SpecError
from parity.mapping import LeafRule, Transpose, parse_rules, rules_text
from tests.ports.corpus import gpt_jax, gpt_torch, mixer_jax, mixer_torch, small, vit_jax, vit_torch
from tests.ports.truth import rules_of

INPUTS = "i[2,7]<31"
GPT = {"torch": gpt_torch.Model, "jax": gpt_jax.Model, "inputs": INPUTS}

RIGHT = {
    "NNX, separate projections": GPT,
    "NNX, its own attention": GPT | {"jax_args": {"how": "own"}},
    "fused here, separate there": GPT | {"torch_args": {"fused": False}, "jax_args": {"how": "fused"}},
    "untied": GPT | {"torch_args": {"tied": False}, "jax_args": {"tied": False}},
    "linen": GPT | {"jax": gpt_jax.LinenModel},
    "stacked layers": GPT | {"jax": gpt_jax.stacked},
}
"""Ports of one GPT that are right, in styles that differ."""

CORPUS = {
    "a convolution of patches as a matrix": (mixer_torch.reference, mixer_jax.Port("linen")),
    "fused in both, head by head in one": (vit_torch.reference, vit_jax.Port("heads")),
    "separate, and fused head by head": (vit_jax.Port("linen"), vit_jax.Port("heads"), ["f[2,8,8,3]"]),
}
"""Right ports whose rules need another order of axes than shapes say."""

WRONG = {
    "epsilon of the norms": ({"eps": 1e-6}, "parts: output 0"),
    "form of GELU": ({"approximate": True}, "parts: output 0"),
    "the head is not tied": ({"tied": False}, "are one parameter of Model (torch), which is likely two here"),
    "a layer is missing": ({"layers": 1}, "without a counterpart: Model (torch): h."),
}


def turned(module: str, leaf: str) -> LeafRule:
    return LeafRule((f"{module}.weight",), (leaf,), (Transpose(),))


def without(leaf: str, rules: list[LeafRule]) -> list[LeafRule]:
    return [rule for rule in rules if rule.target != (leaf,)]


QUICK = ("NNX, separate projections",)


def by_hand(name: str) -> str:
    """Return the leaf of the NNX model that stands for one of PyTorch's, projections left out."""
    for one, other in (
        (r"^h\.(\d+)\.ln_(\d)\.weight", r"blocks.\1.norm\2.scale"),
        (r"^h\.(\d+)\.ln_(\d)\.bias", r"blocks.\1.norm\2.bias"),
        (r"^h\.(\d+)\.c_fc\.", r"blocks.\1.up."), (r"^h\.(\d+)\.c_out\.", r"blocks.\1.down."),
        (r"^h\.(\d+)\.c_proj\.", r"blocks.\1.o."),
        (r"^wte.weight", "tok.embedding"), (r"^wpe.weight", "pos.embedding"),
        (r"^ln_f.weight", "norm.scale"), (r"^ln_f.bias", "norm.bias"),
    ):  # fmt: skip
        name = re.sub(one, other, name)
    return name.replace(".weight", ".kernel") if name.startswith("blocks") else name


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.soak) for n in RIGHT])
def test_every_row_of_a_right_port_is_sure_and_proven(name):
    found = map_models(**RIGHT[name])
    assert found.verdict == "holds", found.text()
    assert found.proof.outputs < 1e-13
    assert not found.found.unsure


@pytest.mark.parametrize(
    "name", [n if n.startswith("fused") else pytest.param(n, marks=pytest.mark.soak) for n in CORPUS]
)
def test_axes_in_an_order_that_shapes_do_not_say_are_found_and_lead_back(name):
    found = rules_of(*CORPUS[name])
    assert found.verdict == "holds", found.text()
    assert not found.found.unsure
    assert [row.rule for row in parse_rules("map.toml", tomllib.loads(rules_text(found.rules))["rule"])] == list(
        found.rules
    )


def test_the_rows_are_the_right_ones_and_are_read_back():
    found = map_models(**RIGHT["NNX, separate projections"])
    for row in found.found.rows:
        if "c_attn" in row.first[0]:
            layer, word = re.match(r"h\.(\d)\.c_attn\.(\w+)", row.first[0]).groups()
            leaf = {"weight": "kernel", "bias": "bias"}[word]
            assert row.second == tuple(f"blocks.{layer}.{one}.{leaf}" for one in "qkv")
        else:
            assert row.second == (by_hand(row.first[0]),)
    text = found.rules_text
    assert text.count("[[rule]]") < len(found.rules), "layers have one row"
    again = parse_rules("map.toml", tomllib.loads(text)["rule"])
    proven = map_models(**RIGHT["NNX, separate projections"], rules=[one.rule for one in again])
    assert proven.verdict == "holds", proven.text()


@pytest.mark.parametrize(
    "name", ["epsilon of the norms", *(pytest.param(n, marks=pytest.mark.soak) for n in list(WRONG)[1:])]
)
def test_a_wrong_port_is_never_proven(name):
    args, said = WRONG[name]
    found = map_models(**GPT, jax_args=args)
    assert found.verdict == "broken"
    assert said in found.text()


@pytest.mark.parametrize("seed", range(3))
def test_names_and_their_order_decide_nothing(seed):
    names = [f"leaf_{number}" for number in np.random.default_rng(seed).permutation(6)]
    found = map_models(torch=small.Model, jax=small.named(names), inputs="f[4,3]")
    assert found.verdict == "holds", found.text()
    first, one, two, last, bias, shift = names
    wanted = {"first.weight": first, "inner.0.weight": one, "inner.1.weight": two, "last.weight": last,
              "first.bias": bias, "inner.0.bias": shift}  # fmt: skip
    assert {row.first[0]: row.second[0] for row in found.found.rows} == wanted


def anonymous(make, seed):
    """Return what makes the port as a flat tree whose names are drawn, and a mapping that gets the true names."""
    truth = {}

    def build():
        model = make(nnx.Rngs(0))
        model.eval()
        graph, params, rest = nnx.split(model, nnx.Param, ...)
        flat, tree = jax.tree_util.tree_flatten_with_path(params)
        names = [f"n{number}" for number in np.random.default_rng(seed).permutation(len(flat))]
        for name, (path, _) in zip(names, flat, strict=True):
            truth[name] = ".".join(str(key.key) for key in path if hasattr(key, "key"))

        def apply(params, tokens):
            whole = jax.tree_util.tree_unflatten(tree, [params[name] for name in names])
            return nnx.merge(graph, whole, rest)(tokens)

        return {name: leaf for name, (_, leaf) in zip(names, flat, strict=True)}, apply

    return build, truth


@pytest.mark.parametrize("layers", [2, pytest.param(6, marks=pytest.mark.soak)])
def test_a_gpt_without_names_or_modules_is_told_to_the_last_key_bias(layers):
    build, truth = anonymous(lambda rngs: gpt_jax.Model(layers=layers, rngs=rngs), seed=layers)
    found = map_models(torch=gpt_torch.Model, torch_args={"layers": layers}, jax=build, inputs=INPUTS)
    assert found.verdict == "holds", found.text()
    for row in found.found.rows:
        names = tuple(truth[name] for name in row.second)
        if "c_attn" in row.first[0]:
            layer, word = re.match(r"h\.(\d)\.c_attn\.(\w+)", row.first[0]).groups()
            assert names == tuple(f"blocks.{layer}.{one}.{ {'weight': 'kernel'}.get(word, word) }" for one in "qkv")
        else:
            assert names == (by_hand(row.first[0]),)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rules: rules[:-1], "no rule gives|which .* has not"),
        (lambda rules: [turned("inner.0", "w2"), turned("inner.1", "w1"), *rules[:2], *rules[4:]], "parts: output 0"),
        (lambda rules: [LeafRule(("inner.0.weight",), ("w1",)), *without("w1", rules)], "parts: output 0"),
        (lambda rules: [*rules, rules[0]], "two rules take"),
    ],
    ids=["a row is missing", "two layers are exchanged", "a square matrix is not transposed", "a row twice"],
)  # fmt: skip
def test_rules_that_are_wrong_are_broken(change, said):
    right = map_models(torch=small.Model, jax=small.port, inputs="f[4,3]")
    order = {"w0": 0, "b0": 1, "w1": 2, "w2": 3, "b1": 4, "w3": 5}
    rules = sorted(right.rules, key=lambda rule: order[rule.target[0]])
    assert map_models(torch=small.Model, jax=small.port, inputs="f[4,3]", rules=rules).verdict == "holds"
    found = map_models(torch=small.Model, jax=small.port, inputs="f[4,3]", rules=change(rules))
    assert found.verdict == "broken"
    assert re.search(said, found.text()), found.text()


def test_leaves_that_do_the_same_are_unsure_and_not_written_as_rules():
    found = map_models(torch=small.Twice, jax=small.twice, inputs="f[4,3]")
    assert found.verdict == "inconclusive"
    assert len(found.found.unsure) == 2
    assert "does not tell them apart" in found.text()
    text = found.rules_text
    assert "# unsure: " in text
    assert "left" not in "".join(line for line in text.splitlines() if not line.startswith("#"))


def test_a_leaf_that_nothing_reaches_is_named_and_its_module_is_not_called_equal():
    found = map_models(torch=small.Unused, jax=small.unused, inputs="f[4,3]")
    assert found.verdict == "inconclusive"
    assert "no output follows spare" in found.text()


def test_running_statistics_are_told_by_outputs():
    found = map_models(torch=small.Normed, jax=small.Normal, inputs="f[4,3]")
    assert found.verdict == "holds", found.text()
    rows = {row.first[0]: row.second[0] for row in found.found.rows}
    assert rows["norm.running_mean"] == "BatchNorm_0.mean"
    assert rows["norm.running_var"] == "BatchNorm_0.var"
    assert [rule.collection for rule in found.rules if rule.source == ("norm.running_var",)] == ["batch_stats"]


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_an_island_of_float32_is_lifted_named_and_measured(kind):
    island = {"torch": {"torch": small.Narrow}, "jax": {"jax": small.narrow}}[kind]
    found = map_models(**({"torch": small.Model, "jax": small.port, "inputs": "f[4,3]"} | island))
    assert found.verdict == "holds", found.text()
    [(_, found_island), *_] = found.proof.islands
    assert "small" in found_island.where
    [effect] = found.proof.effects.values()
    assert 1e-10 < effect < 1e-5


def test_an_island_that_cannot_be_lifted_makes_it_inconclusive():
    found = map_models(torch=small.Hidden, jax=small.port, inputs="f[4,3]")
    assert found.verdict == "inconclusive"
    assert "could not be lifted" in found.text()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"torch": small.Model}, "expected two models"),
        ({"torch": small.Needs, "jax": small.port}, "--torch: .*cannot be built.*--torch-args"),
        ({"torch": small.Model, "jax": small.port, "inputs": "f[4,5]"}, "cannot be called with them"),
        ({"torch": small.Model, "jax": small.port, "inputs": "f[4"}, "expected MODULE:NAME, or one like"),
        ({"torch": small.Model, "jax": small.port, "inputs": "i[4]"}, "needs what its integers are below"),
        ({"torch": small.Noisy, "jax": small.port, "inputs": "f[4,3]"}, "gives another output 0 when"),
        ({"torch": small.Endless, "jax": small.port, "inputs": "f[4,3]"}, "elements that are not finite"),
        ({"torch": small.Model, "jax": small.wide, "inputs": "f[4,3]"}, "output 0 of Model is"),
        ({"torch": small.Model, "jax": 3, "inputs": "f[4,3]"}, "expected a module of NNX"),
        ({"jax": [small.port, small.port]}, "give --inputs"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_one_clear_error(given, said):
    with pytest.raises(SpecError, match=said):
        map_models(**given)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    import torch

    torch.save(gpt_torch.Model().state_dict(), tmp_path / "last.pt")
    with pytest.raises(CheckpointError, match=r"is not of Model: it lacks first\.weight"):
        map_models(torch=small.Model, jax=small.port, inputs="f[4,3]", checkpoint=tmp_path / "last.pt")
    torch.save({"model": small.Model().state_dict()}, tmp_path / "right.pt")
    found = map_models(torch=small.Model, jax=small.port, inputs="f[4,3]", checkpoint=tmp_path / "right.pt")
    assert found.verdict == "holds"
    assert rules_text(found.rules)


def test_symmetric_values_are_the_same_in_any_order_of_axes():
    one = symmetric((3, 4, 3), "parameter", 5)
    for axes in ((2, 1, 0), (1, 0, 2), (0, 2, 1)):
        assert np.array_equal(one.transpose(axes), symmetric(one.transpose(axes).shape, "parameter", 5))
    assert not np.array_equal(one, symmetric((3, 4, 3), "parameter", 6))


def test_leaves_of_one_shape_that_do_something_else_are_not_sure_for_being_the_last():
    found = map_models(torch=small.Shifted, jax=small.scaled, inputs="f[4,3]")
    assert found.verdict != "holds"
    [row] = [row for row in found.found.rows if "shift" in row.first]
    assert not row.sure


def test_leaves_of_unequal_numbers_of_axes_in_one_leaf_have_no_row_and_are_no_crash():
    class Apart(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 5)

        def forward(self, x):
            return self.layer(x)

    class Together(nn.Module):
        def __init__(self):
            super().__init__()
            self.both = nn.Parameter(torch.randn(5, 2))

        def forward(self, x):
            return x @ self.both[:, :1].T + self.both[:, 1]

    found = map_models(torch=[Apart, Together], inputs="f[4,1]")
    assert found.verdict == "inconclusive"
    assert "no row of RULES.toml says it" in found.text()
