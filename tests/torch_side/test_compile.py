"""A compiled trainer trains, agrees with the eager one up to rounding, and resumes bitwise."""

from functools import partial
from pathlib import Path

import pytest
import torch

import torch_side
from parity.checks import curve_gap
from parity.checks.criteria import FLOAT64_LIMIT
from parity.reference.planned import judge, run_here
from parity.spec import RunSpec, override
from tests.support.small import small

STEPS = 20

# Importing torch._inductor (2.13) warns about a class of its own.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
    pytest.mark.takes_seconds,
]


@pytest.fixture(scope="module")
def spec() -> RunSpec:
    """Return a tiny run: one compilation of the forward and one of the backward pass."""
    return small(
        "mlp-digits",
        "float64",
        "execution.torch=compile",
        "steps=20",
        "save.every=5",
        "validate_every=10",
        "schedule.warmup=0",
        "optimizer.lr=0.01",
    )


@pytest.fixture(params=["aot_eager", pytest.param("inductor", marks=pytest.mark.soak)], autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile by what makes a graph of each direction, or by that and then in C++: a minute of a processor."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=request.param))
    torch.compiler.reset()


def test_compiled_and_eager_agree_in_float64(spec: RunSpec) -> None:
    compiled, eager = (torch_side.build(override(spec, [f"execution.torch={kind}"])) for kind in ("compile", "eager"))
    assert compiled._loss != compiled._plain_loss
    assert eager._loss == eager._plain_loss
    left, right = ({r.step: r.loss for r in trainer.steps(STEPS)} for trainer in (compiled, eager))
    gap = curve_gap(left, right)
    assert gap.steps == STEPS
    assert gap.max_rel < FLOAT64_LIMIT
    assert left[STEPS] < left[1]


def test_a_compiled_run_resumes_bitwise(spec: RunSpec, tmp_path: Path) -> None:
    findings = judge(*run_here(spec, torch_side, tmp_path, [8, 13]))
    assert not findings.broken, findings
    assert findings.steps_compared == STEPS
