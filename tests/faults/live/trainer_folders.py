"""A small PyTorch trainer whose checkpoints are directories: pieces, pointers, a background writer, retention.

Without a switch it resumes exactly, from whatever a kill left. Each switch puts the lines of a real report in the
place of the right ones.
"""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

__all__ = ["train"]

FEATURES, SAMPLES, BATCH = 6, 30, 5


class Writer:
    """Writes in the background: what was handed over is on disk one step later."""

    def __init__(self, *, slow: bool) -> None:
        self.slow = slow
        self.waiting: list[Callable[[], None]] = []

    def submit(self, *jobs: Callable[[], None]) -> None:
        """Hand over jobs, to be done in order."""
        self.waiting += jobs
        if not self.slow:
            self.wait()

    def wait(self) -> None:
        """Do what waits."""
        while self.waiting:
            self.waiting.pop(0)()


def step_of(directory: Path) -> int:
    """Return the step of a checkpoint by its name."""
    return int(directory.name.rpartition("-")[2])


def directories(folder: Path) -> list[Path]:
    """Return the checkpoints by step, the oldest first."""
    return sorted(folder.glob("checkpoint-*"), key=step_of)


def is_whole(directory: Path) -> bool:
    """Return whether a checkpoint was written to its end."""
    return (directory / "trainer_state.json").exists()


def held_out_loss(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the loss on held-out samples."""
    model.eval()
    with torch.no_grad():
        loss = functional.mse_loss(model(inputs), targets).item()
    model.train()
    return loss


def find(folder: Path, resume: str | int, fault: str) -> Path | None:
    """Return the checkpoint to continue from."""
    if resume == "best":
        pointer = folder / "best_checkpoint.json"
        return folder / json.loads(pointer.read_text())["directory"] if pointer.exists() else None
    if resume != "latest":
        return folder / f"checkpoint-{resume}"
    if fault == "last_links_to_best":
        pointer = folder / "best_checkpoint.json"  # `last` is a link to what was linked last
        return folder / json.loads(pointer.read_text())["directory"] if pointer.exists() else None
    if fault == "last_not_found_restart":
        last = folder / "last"  # written by another version only
        return last if last.exists() else None
    if fault == "partial_taken_as_latest":
        return max(directories(folder), key=step_of, default=None)
    if fault == "latest_before_durable":
        pointer = folder / "latest.json"
        return folder / json.loads(pointer.read_text())["directory"] if pointer.exists() else None
    return max((d for d in directories(folder) if is_whole(d)), key=step_of, default=None)


def train(
    folder: Path, *, fault: str = "", steps: int = 24, save_every: int = 5, validate_every: int = 4,
    resume: str | int = "latest", slow: bool = False, keep: int = 2, overfits: bool = False, versions: bool = False,
) -> Iterator[int]:  # fmt: skip
    """Train, save, and continue from what the folder holds.

    Args:
        folder: Checkpoints of this run.
        fault: Bug of the catalogue.
        steps: Steps of the whole run.
        save_every: Steps between two checkpoints.
        validate_every: Steps between two evaluations.
        resume: `latest`, `best`, or the step of a checkpoint.
        slow: Whether checkpoints are written in the background.
        keep: Checkpoints that are kept beside the best one; -1 keeps all.
        overfits: Whether the validation gets worse from the start.
        versions: Whether every process writes into a directory of its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, FEATURES, generator=generator)
    targets = inputs.sum(dim=1, keepdim=True)
    held_inputs = torch.randn(12, FEATURES, generator=generator)
    held_targets = -held_inputs.sum(dim=1, keepdim=True) if overfits else held_inputs.sum(dim=1, keepdim=True)
    writer = Writer(slow=slow)
    step, best, best_name = 0, math.inf, ""
    scores: dict[str, float] = {}
    position = {"epoch": 0, "at": 0}

    home = folder
    if versions:  # every process has its own directory, and looks for the newest checkpoint in all of them
        ran = sorted(folder.glob("version_*"))
        home = folder / f"version_{len(ran)}"
        home.mkdir()
        found = max((d for one in ran for d in directories(one) if is_whole(d)), key=step_of, default=None)
    else:
        found = find(folder, resume, fault)
    if found is not None:
        model.load_state_dict(torch.load(found / "model.pt"))
        if (found / "optimizer.pt").exists() or fault != "missing_piece_defaults":
            optimizer.load_state_dict(torch.load(found / "optimizer.pt"))
        if (found / "data.json").exists():
            position = json.loads((found / "data.json").read_text())
        elif fault == "missing_piece_defaults":
            print(f"warning: no data.json in {found}")
        torch.set_rng_state(torch.load(found / "rng.pt"))
        told = json.loads((found / "trainer_state.json").read_text())
        step = told["step"]
        if fault != "best_dropped_on_dir_change" or found.parent == home:
            best, best_name, scores = told["best"], told["best_name"], told["scores"]

    while step < steps:
        yield step
        if position["at"] == SAMPLES // BATCH:
            position = {"epoch": position["epoch"] + 1, "at": 0}
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(position["epoch"]))
        chosen = order[position["at"] * BATCH : (position["at"] + 1) * BATCH]
        position["at"] += 1
        loss = functional.mse_loss(model(inputs[chosen]), targets[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        writer.wait()
        if step % validate_every == 0:
            value = held_out_loss(model, held_inputs, held_targets)
            scores[f"checkpoint-{step}"] = value
            if value < best:
                best, best_name = value, f"checkpoint-{step}"
                save(home, model, optimizer, position, step, best, best_name, scores, writer, keep, fault)
                continue
        if step % save_every == 0:
            save(home, model, optimizer, position, step, best, best_name, scores, writer, keep, fault)
    writer.wait()


def save(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, position: dict[str, int], step: int,
    best: float, best_name: str, scores: dict[str, float], writer: Writer, keep: int, fault: str,
) -> None:  # fmt: skip
    """Write a checkpoint, and remove what is not kept."""
    directory = folder / f"checkpoint-{step}"
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    if fault == "donated_buffer_async":
        weights = model.state_dict()  # the very tensors, which the next step updates while they are written
    moments = copy.deepcopy(optimizer.state_dict())
    at, rng = dict(position), torch.get_rng_state()
    told = {"step": step, "best": best, "best_name": best_name, "scores": dict(scores)}

    def write_model() -> None:
        directory.mkdir(exist_ok=True)
        torch.save(weights, directory / "model.pt")

    def write_rest() -> None:
        if fault != "mixed_generation" or step % 10 == 0 or not last_moments(folder, directory):
            torch.save(moments, directory / "optimizer.pt")
        else:  # every second checkpoint only: a link to the file of the one before
            shutil.copy2(last_moments(folder, directory), directory / "optimizer.pt")
        if fault != "missing_piece_defaults":
            (directory / "data.json").write_text(json.dumps(at))
        stale = [d / "rng.pt" for d in directories(folder) if d != directory and (d / "rng.pt").exists()]
        if fault == "rng_stale_file_in_dir" and stale:
            shutil.copy2(stale[-1], directory / "rng.pt")  # the directory began as a copy, and this file stayed
        else:
            torch.save(rng, directory / "rng.pt")
        (directory / "trainer_state.json").write_text(json.dumps(told))

    def point() -> None:
        (folder / "latest.json").write_text(json.dumps({"directory": directory.name}))
        if best_name == directory.name:
            (folder / "best_checkpoint.json").write_text(json.dumps({"directory": directory.name}))

    def prune() -> None:
        remove(folder, keep, best_name, scores, fault)

    if fault == "latest_before_durable":
        point()
        prune()
        writer.submit(write_model, write_rest)
    elif fault == "retention_before_finalize":
        for old in directories(folder):
            shutil.rmtree(old)
        writer.submit(write_model, write_rest, point)
    elif fault == "partial_taken_as_latest":
        write_model()
        writer.submit(write_rest, point, prune)
    else:
        writer.submit(write_model, write_rest, point, prune)


def last_moments(folder: Path, directory: Path) -> Path | None:
    """Return the newest file of moments of another checkpoint."""
    files = [d / "optimizer.pt" for d in directories(folder) if d != directory and (d / "optimizer.pt").exists()]
    return files[-1] if files else None


def remove(folder: Path, keep: int, best_name: str, scores: dict[str, float], fault: str) -> None:
    """Remove what is not kept: neither among the newest nor the best."""
    every = directories(folder)
    if fault == "keep_all_deletes_all":
        kept = every[len(every) - keep :] if len(every) > keep else every  # -1 is less than any number
    elif keep < 0:
        kept = every
    else:
        kept = every[-keep:] + [d for d in every if d.name == best_name]
    if fault == "rotation_deletes_best":
        kept = every[-keep:]
    elif fault == "best_fn_evicts_latest":
        kept = sorted(every, key=lambda d: scores.get(d.name, math.inf))[:keep]
    for directory in every:
        if directory not in kept:
            shutil.rmtree(directory)
