"""Trainers that lose something which the run shows late, elsewhere or under a misleading name: each has to be red."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.corpus import losers_jax as jax_side

__all__ = ["LOSERS", "Loser"]

DRAWS = np.random.default_rng(3)
INPUTS, GOALS = DRAWS.normal(size=(40, 3)), DRAWS.normal(size=40)


def _slope(w: Any, rows: Any) -> Any:
    return INPUTS[rows].T @ (INPUTS[rows] @ w - GOALS[rows]) / len(rows)


def _load(folder: Path, **fresh: Any) -> dict[str, Any]:
    if not (folder / "state.npz").exists():
        return {"w": np.zeros(3), "step": 0, **fresh}
    with np.load(folder / "state.npz") as held:
        return {**fresh, "w": held["w"], "step": int(held["step"])}  # all else begins anew


def _rows(step: int) -> Any:
    return np.arange(step * 4, step * 4 + 4) % 40


def float_that_is_saved_and_never_loaded(folder: Path, steps: int = 12) -> Iterator[int]:
    begun = _load(folder)
    w, total = begun["w"], 0.0
    for step in range(begun["step"], steps):
        yield step
        w = w - 0.1 * _slope(w, _rows(step))
        total += float(np.square(w).sum())
        if step % 4 == 3:
            np.savez(folder / "state.npz", w=w, step=step + 1, total=total)


def averaged_array_named_targets(folder: Path, steps: int = 12) -> Iterator[int]:
    begun = _load(folder)
    w = begun["w"]
    targets = w.copy()
    for step in range(begun["step"], steps):
        yield step
        w = w - 0.1 * _slope(w, _rows(step)) - 0.01 * (w - targets)
        targets = 0.9 * targets + 0.1 * w
        if step % 4 == 3:
            np.savez(folder / "state.npz", w=w, step=step + 1)


def averaged_array_named_y(folder: Path, steps: int = 12) -> Iterator[int]:
    begun = _load(folder)
    w = begun["w"]
    y = w.copy()
    for step in range(begun["step"], steps):
        yield step
        w = w - 0.1 * _slope(w, _rows(step))
        y = 0.9 * y + 0.1 * w
        if step % 4 == 3:
            np.savez(folder / "state.npz", w=w, step=step + 1)
    np.save(folder / "model.npy", y)


def weights_as_floats_of_python(folder: Path, steps: int = 12) -> Iterator[int]:
    a, b, start, file = 0.0, 0.0, 0, folder / "line.json"
    if file.exists():
        a, start = json.loads(file.read_text())  # b was not saved
    for step in range(start, steps):
        yield step
        x, goal = float(INPUTS[step, 0]), float(GOALS[step])
        error = a * x + b - goal
        a, b = a - 0.1 * error * x, b - 0.1 * error
        if step % 4 == 3:
            file.write_text(json.dumps([a, step + 1]))
    (folder / "final.txt").write_text(f"{a} {b}")


def integer_that_enters_the_last_step(folder: Path, steps: int = 12) -> Iterator[int]:
    begun = _load(folder)
    w, seen = begun["w"], 0
    for step in range(begun["step"], steps):
        yield step
        w = w - 0.1 * _slope(w, _rows(step))
        seen += 4
        if step == steps - 1:
            w = w * seen
        if step % 4 == 3:
            np.savez(folder / "state.npz", w=w, step=step + 1)
    (folder / "final.txt").write_text(str(w.tolist()))


def patience_that_heals(folder: Path, steps: int = 12) -> Iterator[int]:
    begun = _load(folder)
    w, bad, best = begun["w"], 0, 1e9
    scores = {1: 5.0, 3: 6.0, 5: 7.0, 7: 8.0, 9: 1.0, 11: 0.5}
    for step in range(begun["step"], steps):
        yield step
        w = w - 0.1 * _slope(w, _rows(step))
        if step in scores:
            best, bad = (scores[step], 0) if scores[step] < best else (best, bad + 1)
            if bad > 3:
                break
        if step % 6 == 5:
            np.savez(folder / "state.npz", w=w, step=step + 1)


def _exported(name: str, write: Callable[[Path, Any], None]) -> Callable[..., Iterator[int]]:
    def train(folder: Path, steps: int = 12) -> Iterator[int]:
        begun = _load(folder)
        w = begun["w"]
        mean = w.copy()
        for step in range(begun["step"], steps):
            yield step
            w = w - 0.1 * _slope(w, _rows(step))
            mean += (w - mean) / 4
            if step % 4 == 3:
                np.savez(folder / "state.npz", w=w, step=step + 1)
        write(folder / name, mean)

    train.__name__ = train.__qualname__ = f"exported_{name.replace('.', '_')}"
    return train


exported_model_npy = _exported("model.npy", np.save)
exported_average_npy = _exported("average.npy", np.save)
exported_model_json = _exported("model.json", lambda path, w: path.write_text(json.dumps(w.tolist())) and None)
exported_weights_csv = _exported("weights.csv", np.savetxt)


class Average:
    value: Any = None


def class_attribute_saved_and_never_loaded(folder: Path, steps: int = 12) -> Iterator[int]:
    import torch

    file, start, w = folder / "state.pt", 0, torch.zeros(3, dtype=torch.float64)
    if file.exists():
        held = torch.load(file)
        w, start = held["w"], held["step"]
    Average.value = w.clone()
    for step in range(start, steps):
        yield step
        w = w - 0.1 * torch.from_numpy(_slope(w.numpy(), _rows(step)))
        Average.value = 0.9 * Average.value + 0.1 * w
        if step % 4 == 3:
            torch.save({"w": w, "step": step + 1, "ema": Average.value}, file)


def state_in_the_closure_of_a_forward_hook(folder: Path, steps: int = 12) -> Iterator[int]:
    import torch

    torch.manual_seed(0)
    net, file, start = torch.nn.Linear(3, 1).double(), folder / "net.pt", 0
    if file.exists():
        held = torch.load(file)
        net.load_state_dict(held["net"])
        start = held["step"]
    scale = [1.0]

    def hook(_: Any, __: Any, out: Any) -> Any:
        scale[0] = 0.9 * scale[0] + 0.1 * float(out.detach().abs().mean())
        return out / (1 + scale[0])

    net.register_forward_hook(hook)
    for step in range(start, steps):
        yield step
        net.zero_grad()
        net(torch.from_numpy(INPUTS[_rows(step)])).square().mean().backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad
        if step % 4 == 3:
            torch.save({"net": net.state_dict(), "step": step + 1}, file)


def spectral_norm_u_reset(folder: Path, steps: int = 12) -> Iterator[int]:
    import torch

    torch.manual_seed(0)
    net = torch.nn.utils.spectral_norm(torch.nn.Linear(3, 3)).double()
    file, start = folder / "net.pt", 0
    if file.exists():
        held = torch.load(file)
        net.load_state_dict({**net.state_dict(), "weight_orig": held["w"], "bias": held["b"]})
        start = held["step"]
    for step in range(start, steps):
        yield step
        net.zero_grad()
        net(torch.from_numpy(INPUTS[_rows(step)])).sub(1).square().mean().backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad
        if step % 4 == 3:
            torch.save({"w": net.weight_orig, "b": net.bias, "step": step + 1}, file)


def fixed_noise_redrawn(folder: Path, steps: int = 12) -> Iterator[int]:
    begun = _load(folder)
    w = begun["w"]
    fixed = np.random.default_rng(7 + begun["step"]).normal(size=3)
    for step in range(begun["step"], steps):
        yield step
        w = w - 0.1 * _slope(w, _rows(step))
        if step % 4 == 3:
            np.save(folder / f"samples_{step}.npy", w * fixed)
            np.savez(folder / "state.npz", w=w, step=step + 1)


def pointer_of_a_queue(folder: Path, steps: int = 12) -> Iterator[int]:
    w, queue, ptr, start, file = np.zeros(3), np.ones((5, 3)), 0, 0, folder / "q.npz"
    if file.exists():
        with np.load(file) as held:
            w, queue, start = held["w"], held["queue"], int(held["step"])
    for step in range(start, steps):
        yield step
        w = w - 0.1 * _slope(w, _rows(step)) - 0.01 * queue.T @ (queue @ w)
        queue[ptr] = w
        ptr = (ptr + 1) % 5
        if step % 4 == 3:
            np.savez(file, w=w, queue=queue, step=step + 1)


def statistics_in_a_dict_batchnorm(folder: Path, steps: int = 12) -> Iterator[int]:
    begun = _load(folder)
    w, batchnorm = begun["w"], {"mean": np.zeros(3)}
    for step in range(begun["step"], steps):
        yield step
        w = w - 0.1 * _slope(w, _rows(step))
        batchnorm["mean"] = 0.9 * batchnorm["mean"] + 0.1 * INPUTS[_rows(step)].mean(0)
        if step % 4 == 3:
            np.savez(folder / "state.npz", w=w, step=step + 1)
    return batchnorm["mean"]


def lost_deque(folder: Path, steps: int = 12) -> Iterator[int]:
    begun = _load(folder)
    w = begun["w"]
    norms: deque[float] = deque(maxlen=4)
    for step in range(begun["step"], steps):
        yield step
        grad = _slope(w, _rows(step))
        norms.append(float(np.linalg.norm(grad)))
        w = w - 0.1 * grad * min(1.0, sum(norms) / len(norms) / norms[-1])
        if step % 4 == 3:
            np.savez(folder / "state.npz", w=w, step=step + 1)


def lost_probability(folder: Path, steps: int = 12) -> Iterator[int]:
    begun = _load(folder)
    w, ada_p = begun["w"], 0.0
    for step in range(begun["step"], steps):
        yield step
        w = w - 0.1 * _slope(w, _rows(step)) * (1 - ada_p)
        ada_p = min(1.0, ada_p + 0.01)
        if step % 4 == 3:
            np.savez(folder / "state.npz", w=w, step=step + 1)


def lost_loss_scale(folder: Path, steps: int = 12) -> Iterator[int]:
    begun = _load(folder)
    w, scale, good = begun["w"], 2.0, 0
    for step in range(begun["step"], steps):
        yield step
        w = w - 0.1 * (_slope(w, _rows(step)) * np.float64(scale)).astype(np.float16) / scale
        good += 1  # noqa: SIM113 - it is what is lost
        if good % 3 == 0:
            scale *= 3.0
        if step % 4 == 3:
            np.savez(folder / "state.npz", w=w, step=step + 1)


def lost_stop_flag(folder: Path, steps: int = 12) -> Iterator[int]:
    begun = _load(folder)
    w, stop = begun["w"], False
    for step in range(begun["step"], steps):
        yield step
        if not stop:
            w = w - 0.1 * _slope(w, _rows(step))
        stop = stop or step == 2
        if step % 4 == 3:
            np.savez(folder / "state.npz", w=w, step=step + 1)


def truncated_history(folder: Path, steps: int = 12) -> Iterator[int]:
    begun = _load(folder)
    w, history = begun["w"], []
    for step in range(begun["step"], steps):
        yield step
        level = 1 + sum(one < 2.0 for one in history) // 3
        w = w - 0.1 * _slope(w, np.arange(4 * level))
        history.append(float(np.square(INPUTS @ w - GOALS).mean()))
        if step % 4 == 3:
            np.savez(folder / "state.npz", w=w, step=step + 1)


def _off_by_one(name: str) -> Callable[..., Iterator[int]]:
    source = f"""
def off_by_one_{name}(folder, steps=12):
    w, start, late, file = np.zeros(3), 0, 0, folder / "state.npz"
    if file.exists():
        with np.load(file) as held:
            w, start, late = held["w"], int(held["step"]), 1
    for step in range(start, steps):
        {name} = _rows(step + late)
        yield step
        w = w - 0.1 * _slope(w, {name})
        if step % 4 == 3:
            np.savez(file, w=w, step=step + 1)
"""
    exec(source, globals())
    made: Callable[..., Iterator[int]] = globals()[f"off_by_one_{name}"]
    return made


@dataclass(frozen=True)
class Loser:
    """A trainer that loses something, and words of which the first suspect has one."""

    train: Callable[..., Any]
    words: tuple[str, ...]

    @property
    def id(self) -> str:
        """The name of the function."""
        return self.train.__name__


LOSERS = (
    Loser(float_that_is_saved_and_never_loaded, ("total", "state.npz")),
    Loser(averaged_array_named_targets, ("targets",)),
    Loser(averaged_array_named_y, ("y", "model.npy")),
    Loser(weights_as_floats_of_python, ("b", "final.txt")),
    Loser(integer_that_enters_the_last_step, ("seen",)),
    Loser(patience_that_heals, ("bad", "best")),
    Loser(exported_model_npy, ("mean", "model.npy")),
    Loser(exported_average_npy, ("mean", "average.npy")),
    Loser(exported_model_json, ("mean", "model.json")),
    Loser(exported_weights_csv, ("mean", "weights.csv")),
    Loser(class_attribute_saved_and_never_loaded, ("Average", "ema")),
    Loser(state_in_the_closure_of_a_forward_hook, ("scale", "hook")),
    Loser(spectral_norm_u_reset, ("weight_u", "weight_v", "net")),
    Loser(fixed_noise_redrawn, ("fixed",)),
    Loser(pointer_of_a_queue, ("ptr",)),
    Loser(statistics_in_a_dict_batchnorm, ("batchnorm",)),
    Loser(lost_deque, ("norms",)),
    Loser(lost_probability, ("ada_p",)),
    Loser(lost_loss_scale, ("scale", "good")),
    Loser(lost_stop_flag, ("stop",)),
    Loser(truncated_history, ("history",)),
    Loser(jax_side.statistics_of_linen_in_state, ("state", "batch_stats")),
    Loser(jax_side.state_of_equinox, ("running", "mean")),
    Loser(jax_side.rate_of_injected_hyperparameters, ("learning_rate", "hyperparameters")),
    Loser(jax_side.dtype_in_a_variable, ("dtype",)),
    *(Loser(_off_by_one(name), (name, "late")) for name in ("idx", "i", "rows", "sel")),
)
