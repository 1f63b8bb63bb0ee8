"""`import parity; parity.assert_resumes` loads what a check needs to begin, and no more."""

import json
import subprocess
import sys

import pytest

HEAVY = (
    "spec",
    "twins",
    "formats",
    "checkpoints",
    "convert",
    "runs",
    "report",
    "trackers",
    "cli",
    "checks.across.pair",
)


@pytest.mark.takes_seconds
@pytest.mark.parametrize("name", ["assert_resumes", "resumes", "mark"])
def test_a_public_name_loads_no_spec_no_twins_and_no_formats(name):
    code = f"import json, sys, parity; parity.{name}; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    )
    unwanted = [f"parity.{one}" for one in HEAVY] + [
        "jax",
        "torch",
        "jax_side",
        "torch_side",
        "rich",
        "multiprocessing.pool",
    ]
    assert not [one for one in unwanted if one in loaded]
