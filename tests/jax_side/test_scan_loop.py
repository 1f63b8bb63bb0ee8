"""A scan over steps and a Python loop over the same step give the same bits, at any chunk length."""

from pathlib import Path
from typing import Any

import pytest

import jax_side
from parity.reference.planned import judge, run_here
from parity.spec import override
from parity.state import compare_states
from tests.support.small import NAMES, bits_of, small

STEPS = 60
CHUNKS = (1, 6, 60)


def train(spec: Any, *overrides: str) -> tuple[list[Any], Any]:
    trainer = jax_side.build(override(spec, overrides))
    return bits_of(list(trainer.steps(STEPS))), trainer.export_state()


@pytest.mark.parametrize("name", NAMES)
def test_scans_of_any_length_and_the_loop_are_bitwise_equal(name: str) -> None:
    spec = small(name, "float32", "steps=60", "save.every=60", "validate_every=0", "execution.chunk_seconds=600")
    loop, state = train(spec, "execution.jax=loop", "execution.chunk=13")
    assert len(loop) == STEPS
    for chunk in CHUNKS:
        scan, other = train(spec, f"execution.chunk={chunk}")
        assert scan == loop, chunk
        leaves = {d.leaf for d in compare_states(state, other)}
        assert leaves <= {"config.spec"}, chunk


@pytest.mark.parametrize("name", NAMES)
def test_a_scan_with_overflows_is_the_loop_with_overflows(name: str) -> None:
    spec = small(name, "float16", "scaler.overflow_steps=[3, 4]", "steps=12", "execution.chunk_seconds=600")
    curves = []
    for kind in ("scan", "loop"):
        trainer = jax_side.build(override(spec, [f"execution.jax={kind}", "execution.chunk=12"]))
        records = list(trainer.steps(12))
        assert [r.step for r in records if r.skipped] == [3, 4]
        curves.append(bits_of(records))
    assert curves[0] == curves[1]


@pytest.mark.parametrize("name", ["mlp-digits", "gpt-text"])
def test_native_dropout_trains_and_its_stream_moves(name: str) -> None:
    native = small(name, "float32", "dropout.generator=native", "dropout.rate=0.5")
    runs = [jax_side.build(spec) for spec in (native, native)]
    before = runs[0].export_state()
    curves = [bits_of(list(run.steps(5))) for run in runs]
    assert curves[0] == curves[1]
    moved = {d.leaf for d in compare_states(before, runs[0].export_state()) if d.leaf.startswith("rng.native.jax")}
    assert moved
    assert all("count" in leaf for leaf in moved)


def test_native_dropout_is_the_same_whatever_the_chunks() -> None:
    spec = small("mlp-digits", "float32", "dropout.generator=native", "dropout.rate=0.5", "steps=20")
    curves = []
    for chunk in (1, 20):
        trainer = jax_side.build(override(spec, [f"execution.chunk={chunk}", "execution.chunk_seconds=600"]))
        curves.append(bits_of(list(trainer.steps(20))))
    assert curves[0] == curves[1]


@pytest.mark.parametrize("generator", ["native", "shared"])
def test_dropout_resumes_bitwise(generator: str, tmp_path: Path) -> None:
    spec = small(
        "mlp-digits",
        "float32",
        f"dropout.generator={generator}",
        "dropout.rate=0.5",
        "steps=20",
        "save.every=5",
        "validate_every=10",
    )
    findings = judge(*run_here(spec, jax_side, tmp_path, [8, 13]))
    assert not findings.broken, findings
    assert findings.steps_compared == 20
