"""`parity demo`: the resume check on a loop that resumes exactly, and on the same loop when it loses its momentum."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parity.cli.options import local_path
from parity.cli.parser import say
from parity.errors import SpecError

__all__ = ["add"]

STEPS, STOP_AT = 30, 17
"""Of the runs; the stop lies two steps after a save."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `parity demo`."""
    parser.add_argument(
        "--write", type=local_path, metavar="FILE.py", help="write the loop there, to change it; it must not exist"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from parity.checks.resume import resumes

    source = Path(__file__).with_name("demo_trainer.py")
    if options.write is not None and options.write.exists():
        raise SpecError("--write", f"{options.write} exists already and is not overwritten; name another file")
    with tempfile.TemporaryDirectory(prefix="parity-demo-") as folder:
        file = Path(folder, "train.py")
        shutil.copy(source, file)
        train = _load(file)
        say(f"A loop in NumPy, {STEPS} steps, killed after {STOP_AT} and resumed from its last save:")
        say("")
        say(_loop(file.read_text(encoding="utf-8")))
        say("")
        clean = resumes(train, steps=STEPS, stop_at=STOP_AT, mode="inline", name="train")
        say(clean.text())
        say("")
        say('The same loop when it restores everything but the velocity, train(folder, forget="velocity"):')
        say("")
        bug = {"forget": "velocity"}
        lossy = resumes(train, steps=STEPS, stop_at=STOP_AT, mode="inline", name="train", options=bug)
        say(lossy.text())
        say("")
    if options.write is not None:
        shutil.copy(source, options.write)
        say(f"wrote {options.write}")
    say("Your own loop: parity.assert_resumes(train, steps=...) in a test; docs/your-trainer.md leads there.")
    return 0 if (clean.verdict, lossy.verdict) == ("holds", "broken") else 1


def _load(file: Path) -> Callable[..., Any]:
    """Import the trainer from a file of its own: what lies within the suite is not judged as the user's."""
    spec = importlib.util.spec_from_file_location("parity_demo_train", file)
    if spec is None or spec.loader is None:
        raise SpecError("demo", f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    train: Callable[..., Any] = module.train
    return train


def _loop(source: str) -> str:
    """Return the training function of the file, indented, without its docstring."""
    lines = source[source.index("def train(") :].splitlines()
    return "\n".join(f"    {line}" for line in lines if '"""' not in line)
