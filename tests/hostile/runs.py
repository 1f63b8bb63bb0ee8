"""A good run of each side, small enough to spoil every byte of, and the tools that spoil copies of it."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parity import sides
from parity.checkpoints import Seal, seal
from parity.runs import QUIET, train
from parity.spec import RunSpec, load, override
from parity.storage import digest_files, list_files

SPEC = load(
    "mlp-digits",
    "float16",
    [
        "model.hidden=[4]",
        "batch=16",
        "steps=4",
        "save.every=2",
        "validate_every=2",
        "execution.chunk=2",
        "scaler.init_scale=1024.0",
    ],
)
"""Checkpoints of steps 2 and 4, some 30 kB each; float16, so that there is a loss scaler to spoil."""

TINY = override(SPEC, ["precision=float32", "model.hidden=[2]", "optimizer.kind=sgd"])
"""The same with less to flip: some 15 kB each."""

OLDER, NEWEST = 2, 4
META = {"torch": "meta.json", "jax": "meta/metadata"}


def make_run(side: str, path: Path, spec: RunSpec = SPEC) -> Path:
    """Train a run and return its directory."""
    train(sides.load(side), side, spec, path, observers=QUIET)
    return path


@dataclass(frozen=True)
class Sandbox:
    """A copy of a good run in a folder of its own, and what lies around it."""

    root: Path

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def older(self) -> Path:
        return self.run / "checkpoints" / str(OLDER)

    @property
    def newest(self) -> Path:
        return self.run / "checkpoints" / str(NEWEST)

    @property
    def outside(self) -> Path:
        """Folder beside the run: nothing in it is any of a restore's business."""
        return self.root / "outside"

    @property
    def canary(self) -> Path:
        """File that every attempt to run code tries to write."""
        return self.root / "canary"


def sandbox(good: Path, root: Path) -> Sandbox:
    """Return a fresh copy of a run."""
    box = Sandbox(root)
    shutil.copytree(good, box.run)
    box.outside.mkdir()
    return box


def reseal(checkpoint: Path, **changes: Any) -> None:
    """Seal what is there now, as an attacker can: every digest fits again.

    Leaves are those of the seal before, unless given; the places are dropped, which no reader needs.
    """
    before = seal.read_seal(checkpoint)
    (checkpoint / seal.FILE).unlink()
    files = digest_files(checkpoint, list_files(checkpoint))
    known = {**vars(before), "files": dict(sorted(files.items())), "places": {}, **changes}
    (checkpoint / seal.FILE).write_text(seal.seal_text(Seal(**known)))


def edit_seal(checkpoint: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the seal's JSON and let its own digest fit again; with None for a value left as it is."""
    value = json.loads((checkpoint / seal.FILE).read_text())
    value.pop("self")
    change(value)
    text = json.dumps(value, indent=1)
    own = seal.xxhash.xxh3_128_hexdigest(text.encode())
    (checkpoint / seal.FILE).write_text(json.dumps(value | {"self": own}, indent=1) + "\n")


def edit_json(path: Path, change: Callable[[Any], Any]) -> None:
    """Change a JSON file in place; `change` returns a new value, or None after changing the one it is given."""
    value = json.loads(path.read_text())
    new = change(value)
    path.write_text(json.dumps(value if new is None else new))


def longer(spec_steps: int) -> Any:
    """Return the spec with more steps to go."""
    return replace(SPEC, steps=spec_steps)
