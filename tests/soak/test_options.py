"""Every optimizer and every schedule through the checks: runs that are killed, twins, handovers; float64."""

from dataclasses import replace
from pathlib import Path

import pytest

from parity import sides
from parity.reference import check_twin_resume, drill_spec
from parity.reference.across import TwinPair, check_handover, check_twins
from parity.spec import RunSpec
from tests.support.options import CASES, RULE_TEXTS
from tests.support.small import small

pytestmark = [pytest.mark.soak]

STEPS, LONG = 40, 200
PATHS = (("jax", "torch"), ("torch", "jax"))


def specs() -> dict[str, RunSpec]:
    found = {name: small(preset, "float64", *overrides) for name, (preset, overrides) in CASES.items()}
    for kind, text in RULE_TEXTS.items():
        rule = text.replace("total_steps=14", f"total_steps={LONG}")
        if "tables" in text:  # whole numbers, for a line of TOML may not have so many dots
            factors = [1 + step % 7 if kind == "lambda" else 1 for step in range(LONG)]
            rule = f'kind="{kind}", tables=[[0.5, {str(factors)[1:-1]}]]'
        schedule = ["schedule.kind=rule", f"schedule.rule={{{rule}}}"]
        momentum = ["optimizer.momentum=0.9", "optimizer.lr=0.01"]
        found[f"rule {kind}"] = small("linear-regression", "float64", *momentum, *schedule)
    return found


SPECS = specs()


@pytest.mark.parametrize("side", ["jax", "torch"])
@pytest.mark.parametrize("name", SPECS)
def test_every_option_resumes_bitwise(name: str, side: str, tmp_path: Path) -> None:
    record = check_twin_resume(drill_spec(SPECS[name], STEPS), side, sides.load(side), tmp_path)
    assert record.verdict == "holds", record


@pytest.mark.parametrize("name", SPECS)
def test_every_option_agrees_and_can_be_handed_over(name: str) -> None:
    spec = replace(drill_spec(SPECS[name], LONG), steps=LONG)
    pair = TwinPair(spec, {side: sides.load(side) for side in ("jax", "torch")}, cache=False)
    records = [check_twins(pair), *(check_handover(pair, path) for path in PATHS)]
    assert [record.verdict for record in records] == ["holds"] * 3, records
