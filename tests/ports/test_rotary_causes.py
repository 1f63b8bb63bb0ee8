"""A rotary before a norm in one model and behind it in the other, of any base and scale of places."""

from types import SimpleNamespace

import numpy as np
import pytest

from parity.checks.models.likely import Scene, likely_cause
from parity.checks.models.rotary_causes import rotary_cause

HEADS = np.random.default_rng(5).normal(size=(2, 7, 3, 8))
PATHS = ("attn.q_norm", "attn.qn")


def turned(x, way, *, base=777.0, scale=0.5, axis=1, sign=1):
    angles = sign * scale * np.outer(np.arange(x.shape[axis]), base ** (-np.arange(4) / 4))
    angles = angles[:, None] if axis == 1 else angles
    z = x[..., :4] + 1j * x[..., 4:] if way == "halves" else x[..., ::2] + 1j * x[..., 1::2]
    z = z * np.exp(1j * angles)
    if way == "halves":
        return np.concatenate((z.real, z.imag), -1)
    return np.stack((z.real, z.imag), -1).reshape(x.shape)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("way", ["halves", "neighbours"])
def test_the_side_that_turns_is_said(way, axis):
    there = turned(HEADS, way, axis=axis)
    said = f"order: rotary (pairs of {way}) before "
    assert rotary_cause(PATHS, HEADS, there).startswith(f"{said}attn.qn there, not here: what goes into it there is")
    assert rotary_cause(PATHS, there, HEADS).startswith(
        f"{said}attn.q_norm here, not there: what goes into it here is"
    )


def test_anything_else_is_no_rotary():
    drawn = np.random.default_rng(6).normal(size=HEADS.shape)
    for there in (HEADS * 2.0, -HEADS, HEADS + 1e-6, drawn, HEADS[:, ::-1], np.roll(HEADS, 1, -1), HEADS * 1.0):
        assert rotary_cause(PATHS, HEADS, there) == ""
    assert rotary_cause(PATHS, HEADS, turned(HEADS, "halves") * (1 + 1e-3 * drawn)) == ""
    assert rotary_cause(PATHS, HEADS[..., 0], HEADS[..., 0]) == ""


def test_it_is_asked_where_the_inputs_of_a_pair_part():
    calls = SimpleNamespace(path=PATHS[0], kind="RMSNorm", inputs=(), outputs=())
    pair = SimpleNamespace(paths=PATHS, first=(calls,), second=(calls,))
    scene = Scene(pair=pair, settings=({}, {}), pairs=(), agreed=(), leaves={})
    assert likely_cause(scene, (HEADS, turned(HEADS, "halves")), None).startswith("order: rotary (pairs of halves)")
