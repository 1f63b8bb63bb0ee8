"""Peak memory of a save, measured in a process that does nothing else: an arm for a worker."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.paired import Arm, Versus
from benchmarks.saving import build, orbax_saver, state_bytes, steps, torch_saver

__all__ = ["arms", "copies_of"]


def copies_of(how: str, bar: float | None = None) -> Versus:
    """Return the ratio of an arm: its name says whose peak it is, since the arms of a test stand in one table.

    Args:
        how: The arm, as of `arms`.
        bar: Most copies that pass; None where nothing is judged.
    """
    of = f"(peak while saving by {how} - peak of the steps alone) / bytes of the state"
    return Versus(name=f"peak memory of {how} / state", of=of, better="lower", bar=bar)


def arms(side: str, parameters: int, how: str) -> list[Arm]:
    """Return the arm `save`, which answers with the copies of the state that the peak lies above that of bare steps.

    Both peaks are of three steps; the base is taken before anything was ever saved, so that buffers which are kept
    for the next save count as what they are.

    Args:
        side: Who trains.
        parameters: Of the model.
        how: `twin`: its own save until durable, while steps continue; else `torch.save` or `orbax`.
    """
    scratch = tempfile.TemporaryDirectory(prefix="parity-memory-")
    trainer = build(side, parameters, Path(scratch.name) / "run")
    size = state_bytes(trainer)
    base = _peak(lambda: steps(trainer))

    def save() -> dict[str, Any]:
        peak = _peak(lambda: _save(trainer, how, Path(scratch.name)))  # which lasts as long as this function
        return {"copies": (peak - base) / size, "bytes": size, "peak": peak, "base": base}

    return [Arm(name="save", run=save)]


def _save(trainer: Any, how: str, home: Path) -> None:
    if how == "twin":
        trainer.save(None)
        steps(trainer)
        trainer.wait()
        return
    saver = torch_saver(trainer, home) if how == "torch.save" else orbax_saver(trainer, home)
    saver.save()
    saver.remove()
    steps(trainer)


def _peak(act: Any) -> int:
    """Return the peak of resident memory in bytes while something is done (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from what is resident now
    act()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise RuntimeError("no VmHWM in /proc/self/status")
