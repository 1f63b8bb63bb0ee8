"""Likely causes told by values: each is named for its planted fault alone, and none for a fault that is not known."""

import numpy as np
import pytest

from parity.checks.models import find_parting, map_models
from parity.checks.models.attention_causes import attention_cause
from parity.checks.models.causes import gate_cause, setting_cause
from parity.checks.models.flow_causes import factor_cause, layout_cause, term_cause
from parity.checks.models.likely import Scene, likely_cause
from parity.checks.models.modules import CallPair
from parity.checks.models.norm_causes import norm_way_cause
from parity.checks.models.pooling_causes import pooling_cause, window_cause
from parity.checks.programs import ACTIVATIONS
from parity.contract import ModuleCall
from tests.ports.corpus import image_nnx, image_torch, mixed_nnx, mixed_torch

IMAGE = {"torch": image_torch.Model, "jax": image_nnx.Model, "inputs": image_torch.inputs}
FLAT, TURN = ("input", "flat"), ("output", "turn")
PADDED = "the mean with the padding counted"

FAULTS = {
    "channels last": (*FLAT, "of the output of conv flattened with channels first here, channels last there"),
    "pool padding same": (*FLAT, "of the output of conv padding (1, 1) here, (0, 1) there"),
    "max pooling": (*FLAT, f"of the output of conv {PADDED} here, the max there"),
    "padding not counted": (*FLAT, f"of the output of conv {PADDED} here, the mean without the padding there"),
    "scaled before the position": (
        "input", "norm", "sum: there it is what is here plus 1.82842712 times the output of flat"
    ),
    "dropout scaling": (
        "input", "turn",
        "factor: there 1.25 times what is here (the scaling of a dropout of 0.2 left on there)",
    ),
    "transposed weight": (*TURN, "weight: transposed in one, as it is in the other"),
    "bias missing": (*TURN, "bias: once more here than there (missing there, or added twice here)"),
    "bias twice": (*TURN, "bias: once more there than here (missing here, or added twice there)"),
    "residual twice": (
        "input", "head", "residual: the sum with the output of turn has the input of norm once here, twice there"
    ),
    "branch halved": (
        "input", "head", "residual: the sum with the input of norm has the output of turn once here, 0.5 times there"
    ),
    "an unknown layer": (*TURN, ""),
    "an unknown pooling": (*FLAT, ""),
    "an unknown sum": ("input", "head", ""),
}  # fmt: skip
"""Fault to what parts first, the module of PyTorch, and the likely cause: none for what is not known."""

QUICK = ("padding not counted", "dropout scaling", "transposed weight", "bias missing", "an unknown sum")

BACK = {
    "norm after": "order: block.norm1 after block.attn here, before it there",
    "no causal mask": "attention: causal mask there, none here",
    "residual missing": (
        "residual: the sum with the output of block.mlp has the input of block.norm2 not at all here, once there"
    ),
    "pooling of the last": "pooling: of the output of norm the last here, the mean there",
    "a window": "",
    "a temperature": "",
}
"""Fault of the first of two models of one framework, and the likely cause."""


@pytest.fixture(scope="module")
def rules():
    found = map_models(**IMAGE)
    assert found.verdict == "holds", found.text()
    return found.rules


@pytest.mark.parametrize("fault", [f if f in QUICK else pytest.param(f, marks=pytest.mark.soak) for f in FAULTS])
def test_a_fault_has_its_cause_and_no_other(rules, fault):
    what, module, cause = FAULTS[fault]
    found = find_parting(**IMAGE, jax_args={"fault": fault}, rules=rules)
    assert (found.verdict, found.what, found.modules[0]) == ("broken", what, module), found.text()
    assert found.cause.removeprefix("pooling: ") == cause
    assert ("likely" in found.text()) == bool(cause)


def test_a_right_port_parts_nowhere(rules):
    found = find_parting(**IMAGE, rules=rules)
    assert (found.verdict, found.cause) == ("holds", "")


@pytest.mark.soak
@pytest.mark.parametrize("fault", BACK)
def test_a_fault_of_the_first_model_has_its_cause(fault):
    both = {
        "jax": [mixed_nnx.Model] * 2,
        "inputs": [mixed_torch.inputs[0].partition("->")[0].replace("3,8,8", "8,8,3")],
    }
    same = map_models(**both)
    assert same.verdict == "holds", same.text()
    found = find_parting(**both, jax_args=[{"fault": fault}, {}], rules=same.rules)
    assert (found.verdict, found.cause) == ("broken", BACK[fault]), found.text()


def _attended(q, k, v, heads=2, scale=None, mask="causal", axis=-1, order=(0, 2, 1, 3)):
    batch, time, width = q.shape
    q, k, v = (one.reshape(batch, time, heads, -1).transpose(0, 2, 1, 3) for one in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * ((width // heads) ** -0.5 if scale is None else scale)
    at = np.arange(time)
    kept = {"causal": at[:, None] >= at, "none": np.ones((time, time), bool), "window": abs(at[:, None] - at) < 2}
    scores = np.where(kept[mask], scores, -np.inf)
    weights = np.exp(scores - scores.max(axis, keepdims=True))
    return (weights / weights.sum(axis, keepdims=True) @ v).transpose(order).reshape(batch, time, width)


RIGHT = {"mask": "none"}
WRONG = {
    "heads": (
        {"heads": 4, "mask": "none"},
        "2 heads here, 4 there; scale of the scores 1/sqrt(4) here, 1/sqrt(2) there",
    ),
    "mask": ({}, "causal mask there, none here"),
    "scale": ({"mask": "none", "scale": 0.25}, "scale of the scores 1/sqrt(4) here, 1/4 there"),
    "softmax over heads": ({"mask": "none", "axis": -3}, "softmax over keys here, over heads there"),
    "two at once": (
        {"scale": 1.0},
        "scale of the scores 1/sqrt(4) here, none there; causal mask there, none here",
    ),
    "window": ({"mask": "window"}, ""),
    "temperature": ({"mask": "none", "scale": 0.7}, ""),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("fused", [False, True])
def test_an_attention_has_its_cause_and_no_other(fault, fused):
    q, k, v = np.random.default_rng(3).normal(size=(3, 2, 5, 8))
    changed, cause = WRONG[fault]
    befores = [np.concatenate([q, k, v], axis=-1)] if fused else [v, k, q]
    found = attention_cause(befores, _attended(q, k, v, **RIGHT), _attended(q, k, v, **changed))
    assert found == (f"attention: {cause}" if cause else "")


GATED = {
    "activation": (("SiLU", 0), "gate: SiLU here, GELU (erf) there", ("GELU (erf)", 0)),
    "gate": (("SiLU", 0), "gate: of the first projection here, of the second there", ("SiLU", 1)),
    "none": (("SiLU", 0), "gate: SiLU here, nothing there", ("nothing", 0)),
    "sine": (("SiLU", 0), "gate: SiLU here, sine there", ("sine", 0)),
    "unknown": (("SiLU", 0), "", ("cosine", 0)),
}


@pytest.mark.parametrize("fault", GATED)
@pytest.mark.parametrize("fused", [False, True])
def test_a_gated_layer_has_its_cause_and_no_other(fault, fused):
    parts = np.random.default_rng(8).normal(size=(2, 3, 5, 8))
    known = ACTIVATIONS | {"cosine": np.cos}
    right, cause, wrong = GATED[fault]
    first, second = (known[name](parts[gate]) * parts[1 - gate] for name, gate in (right, wrong))
    befores = [np.concatenate(list(parts), axis=-1)] if fused else [parts[1], parts[0]]
    assert gate_cause(befores, first, second) == cause


def _normed(x, centred=True, epsilon=1e-5, inside=True, power=2, over=-1):
    x = x - x.mean(over, keepdims=True) if centred else x
    spread = (abs(x) ** power).mean(over, keepdims=True)
    return x / (np.sqrt(spread + epsilon) if inside else np.sqrt(spread) + epsilon)


NORMS = {
    "epsilon": ({"epsilon": 1e-6}, "norm: epsilon 1e-05 here, 1e-06 there"),
    "mean": ({"centred": False}, "norm: the mean is taken off here, not there"),
    "outside": ({"inside": False}, "norm: epsilon inside the root here, outside there"),
    "heads together": ({"over": (1, 2)}, "norm: over the last axis alone here, over axis 1 and the last one there"),
    "samples together": ({"over": (0, 2)}, ""),
    "an epsilon of no library": ({"epsilon": 3e-5}, ""),
    "another power": ({"power": 3}, ""),
}


@pytest.mark.parametrize("fault", NORMS)
@pytest.mark.parametrize("bias", [False, True])
def test_a_norm_of_a_users_own_has_its_cause_and_no_other(fault, bias):
    rng = np.random.default_rng(9)
    given, (scale, shift) = rng.normal(size=(3, 5, 8)) + 0.5, rng.normal(size=(2, 8))
    changed, cause = NORMS[fault]
    first, second = (_normed(given, **named) * scale + bias * shift for named in ({}, changed))
    assert norm_way_cause(first, second, given, [scale, shift] if bias else [scale]) == cause


CONV = {"kernel_size": (3, 3), "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1)}
SAME = {"kernel_size": (3, 3), "strides": 1, "padding": "SAME", "kernel_dilation": 1}
PADDINGS = {
    "same at stride 1": (CONV, SAME, ""),
    "pairs": (CONV, SAME | {"padding": ((1, 1), (1, 1))}, ""),
    "valid": (CONV | {"padding": (0, 0)}, SAME | {"padding": "VALID"}, ""),
    "same of an even kernel": (CONV | {"kernel_size": (2, 2)}, SAME | {"kernel_size": (2, 2)}, "padding"),
    "same at stride 2": (CONV | {"stride": (2, 2)}, SAME | {"strides": 2}, "padding"),
    "same of a wider kernel": (CONV | {"kernel_size": (5, 5)}, SAME | {"kernel_size": (5, 5)}, "padding"),
    "same of a dilated kernel": (CONV | {"dilation": (2, 2), "padding": (2, 2)}, SAME | {"kernel_dilation": 2}, ""),
    "dilated": (CONV | {"dilation": (2, 2)}, SAME | {"kernel_dilation": 2}, "padding"),
    "one side": (CONV, SAME | {"padding": ((0, 1), (0, 1))}, "padding"),
}


@pytest.mark.parametrize("case", PADDINGS)
def test_a_padding_in_other_words_is_no_cause(case):
    first, second, word = PADDINGS[case]
    found = setting_cause(("Conv2d", "Conv"), first, second)
    assert found.startswith(f"Conv2d and Conv: {word}") if word else found == ""


def test_one_head_and_one_place_of_time_are_no_evidence():
    q, k, v = np.random.default_rng(3).normal(size=(3, 2, 1, 8))
    assert attention_cause([v, k, q], v, v + 1.0) == ""


def test_what_rounding_may_be_has_no_cause():
    values = np.random.default_rng(4).normal(size=(2, 6, 8))
    noise = values * (1.0 + 1e-14)
    assert factor_cause(values, noise) == ""
    assert term_cause([("x", values)], values, noise) == ""
    assert layout_cause([("x", values)], values, noise) == ""
    assert pooling_cause([("x", values)], values.mean(1), values.mean(1) * (1.0 + 1e-14)) == ""
    assert window_cause([("x", values.reshape(2, 2, 3, 8))], values, noise) == ""


def test_values_without_a_relation_have_no_cause():
    rng = np.random.default_rng(5)
    terms = [(name, rng.normal(size=(2, 4, 4, 8))) for name in "xyz"]
    for shape in ((2, 4, 4, 8), (2, 128), (2, 8), (2, 16, 8), (2, 72)):
        first, second = rng.normal(size=(2, *shape))
        for cause in (term_cause, layout_cause, pooling_cause, window_cause):
            assert cause(terms, first, second) == ""
        assert factor_cause(first, second, [0.1]) == ""


def test_a_setting_that_evaluation_does_not_read_is_no_cause():
    given, first, second = np.random.default_rng(6).normal(size=(3, 4, 8))
    calls = [ModuleCall("bn", "BatchNorm1d", (given,), (made,), (None,)) for made in (first, second)]
    pair = CallPair((calls[0],), (calls[1],), 0)
    settings = ({"momentum": 0.1, "eps": 1e-5}, {"momentum": 0.5, "eps": 1e-5})
    assert likely_cause(Scene(pair, settings, [pair], [], {}), (first, second), (given, given)) == ""
    settings[1]["eps"] = 1e-3
    found = likely_cause(Scene(pair, settings, [pair], [], {}), (first, second), (given, given))
    assert found == "BatchNorm1d: eps 1e-05 here, eps 0.001 there"
