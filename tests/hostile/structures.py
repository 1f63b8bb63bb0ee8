"""Well-formed PyTorch states that are not this run's: other shapes, types, keys and settings; sealed again."""

from collections.abc import Callable
from typing import Any

import torch

from tests.hostile.entry import Entry
from tests.hostile.pickles import STATE, read_archive, write_archive
from tests.hostile.runs import Sandbox

WEIGHT = "layers.0.weight"


def _edit(change: Callable[[dict[str, Any]], Any]) -> Callable[[Sandbox], None]:
    """Return a spoiler that changes the loaded state and writes it as PyTorch does."""

    def spoil(box: Sandbox) -> None:
        saved = torch.load(box.newest / STATE, weights_only=True)
        new = change(saved)
        torch.save(saved if new is None else new, box.newest / STATE)

    return spoil


def _records(change: Callable[[dict[str, bytes]], Any]) -> Callable[[Sandbox], None]:
    """Return a spoiler that changes the records of the archive."""

    def spoil(box: Sandbox) -> None:
        records = read_archive(box.newest / STATE)
        change(records)
        write_archive(box.newest / STATE, records)

    return spoil


def _weight(make: Callable[[torch.Tensor], Any]) -> Callable[[Sandbox], None]:
    return _edit(lambda s: s["model"].update({WEIGHT: make(s["model"][WEIGHT])}))


def _group(**settings: Any) -> Callable[[Sandbox], None]:
    return _edit(lambda s: s["optimizer"]["param_groups"][0].update(settings))


def _entry(**values: Any) -> Callable[[Sandbox], None]:
    """Change the optimizer's entry of the first parameter."""
    return _edit(lambda s: s["optimizer"]["state"][0].update(values))


def _steps(value: Any) -> Callable[[Sandbox], None]:
    return _edit(lambda s: [entry.update(step=value) for entry in s["optimizer"]["state"].values()] and None)


def _scaler(**values: Any) -> Callable[[Sandbox], None]:
    return _edit(lambda s: s["scaler"].update(values))


def _rng(**values: Any) -> Callable[[Sandbox], None]:
    return _edit(lambda s: s["rng"].update(values))


def _words(value: Any) -> Callable[[Sandbox], None]:
    return _edit(lambda s: s["rng"]["numpy"].__setitem__(1, value))


WIDE = torch.zeros(1, dtype=torch.int8)
"""Expanded, it claims any size and takes one byte in the file."""

FOREIGN = rf"{WEIGHT}|state\.pt: data\.pkl asks for 'torch"
"""A type that no state of this suite has may be refused before it is read as a weight."""

REFUSED: dict[str, tuple[str, Callable[[Sandbox], None]]] = {
    "model-missing": ("model", _edit(lambda s: s.pop("model") and None)),
    "rng-missing": ("rng", _edit(lambda s: s.pop("rng") and None)),
    "part-left-over": ("more", _edit(lambda s: s.update(more=1))),
    "weight-missing": (WEIGHT, _edit(lambda s: s["model"].pop(WEIGHT).tolist() and None)),
    "weight-left-over": ("extra", _edit(lambda s: s["model"].update(extra=torch.zeros(1)))),
    "weight-transposed": (WEIGHT, _weight(lambda w: w.t().contiguous())),
    "weight-of-another-layout": (WEIGHT, _weight(lambda w: w.t().contiguous().t())),
    "weight-of-strides-zero": (WEIGHT, _weight(lambda w: w[:1, :1].expand(w.shape))),
    "weight-of-a-petabyte": (WEIGHT, _weight(lambda w: w[:1, :1].expand(1 << 25, 1 << 25))),
    "weight-within-a-longer-storage": (WEIGHT, _weight(lambda w: torch.cat([w, w])[: len(w)])),
    "weight-float64": (WEIGHT, _weight(lambda w: w.double())),
    "weight-float16": (WEIGHT, _weight(lambda w: w.half())),
    "weight-complex": (FOREIGN, _weight(lambda w: w.to(torch.complex64))),
    "weight-sparse": (FOREIGN, _weight(lambda w: w.to_sparse())),
    "weight-quantized": (FOREIGN, _weight(lambda w: torch.quantize_per_tensor(w, 0.1, 0, torch.qint8))),
    "weight-on-meta": (FOREIGN, _weight(lambda w: torch.empty(w.shape, device="meta"))),
    "weight-a-parameter": (FOREIGN, _weight(torch.nn.Parameter)),
    "weight-a-list": (WEIGHT, _weight(lambda w: w.tolist())),
    "weight-a-text": (WEIGHT, _weight(lambda w: "zeros")),
    "moment-of-another-shape": ("optimizer", _entry(exp_avg=torch.zeros(3))),
    "moment-of-another-type": ("optimizer", _entry(exp_avg=torch.zeros(4, 64, dtype=torch.int64))),
    "moment-missing": ("optimizer", _edit(lambda s: s["optimizer"]["state"][0].pop("exp_avg").tolist() and None)),
    "moment-left-over": ("optimizer", _entry(more=torch.zeros(1))),
    "moment-of-a-petabyte": ("optimizer", _entry(more=WIDE.expand(1 << 50))),
    "moment-of-a-gigabyte": ("optimizer", _entry(more=WIDE.expand(1 << 28))),
    "optimizer-entry-left-over": ("optimizer", _edit(lambda s: s["optimizer"]["state"].update({999: {"step": 1}}))),
    "optimizer-entries-gone": ("optimizer", _edit(lambda s: s["optimizer"].update(state={}))),
    "optimizer-a-list": ("optimizer", _edit(lambda s: s.update(optimizer=[]))),
    "step-fractional": ("optimizer", _steps(torch.tensor(4.5))),
    "step-nan": ("optimizer", _steps(torch.tensor(float("nan")))),
    "step-infinite": ("optimizer", _steps(torch.tensor(float("inf")))),
    "step-negative": ("optimizer", _steps(torch.tensor(-4.0))),
    "step-of-another-time": ("optimizer", _steps(torch.tensor(3.0))),
    "step-a-text": ("optimizer", _entry(step="4")),
    "step-of-one-differs": ("optimizer", _entry(step=torch.tensor(1.0))),
    "groups-none": ("param_groups", _edit(lambda s: s["optimizer"].update(param_groups=[]))),
    "groups-twice": ("param_groups", _edit(lambda s: s["optimizer"]["param_groups"].append({"params": [0]}))),
    "group-of-other-parameters": ("param_groups", _group(params=[0, 0, 0, 0])),
    "group-betas": ("betas", _group(betas=(0.5, 0.5))),
    "group-maximize": ("maximize", _group(maximize=True)),
    "group-weight-decay-nan": ("weight_decay", _group(weight_decay=float("nan"))),
    "group-left-over": ("evil", _group(evil="x" * 1000)),
    "schedule-a-number": ("scheduler", _edit(lambda s: s.update(scheduler=5))),
    "schedule-hides-a-method": ("scheduler", _edit(lambda s: s["scheduler"].update(step=3))),
    "schedule-of-other-rates": ("scheduler", _edit(lambda s: s["scheduler"].update(base_lrs=[1e9]))),
    "scale-nan": ("scale", _scaler(scale=float("nan"))),
    "scale-infinite": ("scale", _scaler(scale=float("inf"))),
    "scale-negative": ("scale", _scaler(scale=-1024.0)),
    "scale-a-text": ("scale", _scaler(scale="1024")),
    "scaler-growth-of-a-million": ("growth", _scaler(growth_factor=1e6)),
    "scaler-tracker-negative": ("growth_tracker", _scaler(_growth_tracker=-1)),
    "stream-of-floats": ("rng", _rng(torch_cpu=torch.zeros(5056))),
    "stream-too-short": ("rng", _rng(torch_cpu=torch.zeros(3, dtype=torch.uint8))),
    "stream-garbage": ("rng", _rng(torch_cpu=torch.full((5056,), 255, dtype=torch.uint8))),
    "stream-python-short": ("rng", _rng(python=(3, (1, 2), None))),
    "stream-python-of-another-version": ("rng", _rng(python=(9, tuple(range(625)), None))),
    "stream-python-negative": ("rng", _rng(python=(3, (*([-1] * 624), 624), None))),
    "stream-numpy-of-a-gigabyte": ("rng", _words(torch.zeros(1, dtype=torch.int64).expand(1 << 27))),
    "stream-numpy-of-text": ("rng", _rng(numpy=["PCG64", torch.zeros(624, dtype=torch.int64), 0.0, 0.0, 0.0])),
    "stream-numpy-position-nan": (
        "rng",
        _edit(lambda s: s["rng"]["numpy"].__setitem__(2, float("nan"))),
    ),
    "stream-numpy-position-beyond": (
        "rng",
        _edit(lambda s: s["rng"]["numpy"].__setitem__(2, 1e9)),
    ),
    "bytes-said-to-be-big-endian": (
        r"model|byteorder|optimizer\.step",
        _records(lambda r: r.update(byteorder=b"big")),
    ),
    "bytes-of-no-known-order": (r"state\.pt", _records(lambda r: r.update(byteorder=b"middle"))),
    "record-too-short": (r"state\.pt", _records(lambda r: r.update({"data/0": r["data/0"][:-4]}))),
    "record-empty": (r"state\.pt", _records(lambda r: r.update({"data/0": b""}))),
    "record-too-long": (r"state\.pt", _records(lambda r: r.update({"data/0": r["data/0"] * 2}))),
    "record-missing": (r"state\.pt", _records(lambda r: r.pop("data/0") and None)),
    "records-exchanged": (
        "model|optimizer|rng",
        _records(lambda r: r.update({"data/0": r["data/5"], "data/5": r["data/0"]})),
    ),
    "torchscript": (r"state\.pt", _records(lambda r: r.update({"constants.pkl": b"\x80\x02)."}))),
}
"""Name to what the message must name, and how the file is spoiled."""

ENTRIES = [
    *(Entry(f"state-{name}", "torch", "refused", names, spoil) for name, (names, spoil) in REFUSED.items()),
    Entry("state-written-again", "torch", "harmless", "", _edit(lambda s: None)),
    Entry("state-weight-that-wants-a-gradient", "torch", "harmless", "", _weight(lambda w: w.requires_grad_())),
]
