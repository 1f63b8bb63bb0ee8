"""Importing the optimizers where something is not installed gives one error, which lists what they need."""

import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.takes_seconds

HIDE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.split(".")[0])

sys.meta_path.insert(0, Hidden())
import {package}
"""
NEEDS = {
    "jax_side.optim": ("jax", "optax", "numpy", "xxhash", "tomli_w"),
    "torch_side.optim": ("torch", "numpy", "ml_dtypes", "xxhash", "tomli_w"),
}


def imported(package: str, *hidden: str) -> subprocess.CompletedProcess[str]:
    code = HIDE.format(hidden=hidden, package=package)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)


@pytest.mark.parametrize(
    ("package", "absent"),
    [("jax_side.optim", "jax"), ("jax_side.optim", "xxhash"), ("torch_side.optim", "torch")],
)
def test_what_is_absent_is_one_error_that_lists_what_is_needed(package: str, absent: str) -> None:
    done = imported(package, absent)
    side = package.partition("_")[0]
    last = done.stderr.strip().splitlines()[-1]
    assert last == (
        f"parity.errors.MissingFrameworkError: {package} needs {', '.join(NEEDS[package])}; there is no {absent}: "
        f"pip install 'parity-suite[{side}]'"
    )
    assert done.stderr.count("Traceback") == 1
    assert "ModuleNotFoundError" not in done.stderr


@pytest.mark.parametrize(
    ("package", "others"), [("jax_side.optim", ("torch", "flax", "orbax")), ("torch_side.optim", ("jax", "optax"))]
)
def test_nothing_else_is_needed(package: str, others: tuple[str, ...]) -> None:
    rest = ("sklearn", "grain", "rich", "shtab", "safetensors", "filelock", "crc32c", "pytest")
    assert imported(package, *others, *rest).stderr == ""
