"""A process that meets the catalogue: one entry after the other, under limits, watched, a line of JSON for each.

A crash, a hang or a refused allocation ends this process and no other; whoever started it sees which entry it was at.
"""

import json
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import xxhash

from parity import sides
from parity.checkpoints import FILE, describe, verify
from parity.errors import ParityError
from parity.runs import Observers, ProcessOptions, train
from parity.state import leaf_digests
from tests.hostile.catalogue import ENTRIES
from tests.hostile.entry import Entry
from tests.hostile.runs import NEWEST, OLDER, SPEC, Sandbox, reseal, sandbox

SECONDS = 60
"""Until a hanging entry ends the process; the slowest takes five on an idle core."""

ADDRESS_SPACE = 4 << 30
"""Bytes of address space beyond what the framework has reserved when the first entry begins."""

FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.", "pty.", "socket.connect")
"""Audit events that no restore has any business with."""

PATHS = (
    "open",
    "os.listdir",
    "os.scandir",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.symlink",
    "shutil.",
)
"""Audit events whose first argument is a path."""

CHANGING = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink", "shutil.")


class Watch:
    """An audit hook: remembers attempts to run something, and every path beside the run that is touched."""

    def __init__(self) -> None:
        self.box: Sandbox | None = None
        self.seen: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if self.box is None:
            return
        if event.startswith(FORBIDDEN):
            self.seen.append(f"{event} {args!r}"[:200])
        elif event.startswith(PATHS) and args and isinstance(args[0], str | bytes | os.PathLike):
            path = os.path.abspath(os.fsdecode(args[0]))
            inside = path == str(self.box.run) or path.startswith(f"{self.box.run}/")
            beside = path.startswith(f"{self.box.root}/") and not inside
            flags = args[2] if event == "open" and isinstance(args[2], int) else 0
            writes = event.startswith(CHANGING) or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if beside or (writes and not inside and not path.startswith(("/dev/null", "/proc/"))):
                self.seen.append(f"{event} {path}")


def status(name: str) -> int:
    """Return a field of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) << 10
    raise KeyError(name)


def everything(trainer: Any) -> dict[str, str]:
    """Return digests of all that a restore may change: the leaves, and on the PyTorch side what hides beside them."""
    out = leaf_digests(trainer.export_state())
    if trainer.side == "torch":
        from torch_side.state import file_state

        out |= {f"file.{path}": value for path, value in _walk(file_state(trainer.state), "")}
        out |= {f"scheduler.{k}": repr(v) for k, v in vars(trainer.scheduler).items() if k in ("base_lrs", "step")}
    return out


def _walk(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key in value:
            yield from _walk(value[key], f"{path}.{key}")
    elif isinstance(value, list | tuple) and len(value) < 100:
        for number, item in enumerate(value):
            yield from _walk(item, f"{path}.{number}")
    elif hasattr(value, "detach"):
        array = np.ascontiguousarray(value.detach().cpu().numpy())
        yield path, f"{array.dtype}{array.shape} {xxhash.xxh3_128_hexdigest(array.tobytes())}"
    else:
        yield path, xxhash.xxh3_128_hexdigest(repr(value).encode())


def meet(entry: Entry, box: Sandbox, watch: Watch, known: dict[int, dict[str, str]]) -> dict[str, Any]:
    """Spoil a copy of the good run as the entry says, verify and restore it, and tell what happened."""
    entry.spoil(box)
    if entry.outcome in ("refused", "harmless"):
        reseal(box.newest)
    elif entry.outcome == "foreign":
        (box.newest / FILE).unlink()
    side, made = sides.load(entry.side), []

    def build(*args: Any, **kwargs: Any) -> Any:
        made.append(side.build(*args, **kwargs))
        return made[-1]

    result: dict[str, Any] = {"id": entry.id}
    if entry.outcome != "run":
        build(SPEC, box.run)
        before = everything(made[0])
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    start, began = status("VmRSS"), time.monotonic()
    watch.box, watch.seen = box, []
    try:
        if entry.outcome == "run":
            spec = replace(SPEC, steps=entry.resume)  # nothing is left to train
            resume: Any = "auto" if entry.resume == NEWEST else entry.resume
            watched = SimpleNamespace(build=build, topology=side.topology)
            train(watched, entry.side, spec, box.run, ProcessOptions(resume=resume), Observers(log=_say))
        else:
            found = verify(box.newest)
            result |= {"whole": found.whole, "foreign": found.unsealed, "faults": describe(found.faults)}
            made[0].restore(NEWEST)
    except BaseException as error:
        result |= _told(error)
    watch.box = None
    result |= {"seconds": time.monotonic() - began, "grown": status("VmHWM") - start, "events": watch.seen}
    result["canary"] = box.canary.exists() or any(box.outside.glob("canary*"))
    after = everything(made[0]) if made else {}
    if entry.outcome != "run":
        result["changed"] = sorted(k for k in {*before, *after} if before.get(k) != after.get(k))
    good = known[entry.resume]
    result["differs"] = sorted(k for k in {*good, *after} if good.get(k) != after.get(k) and k != "config.spec")
    for trainer in made:
        trainer.close()
    return result


def _say(line: str) -> None:
    line.encode()  # what cannot be printed is an error of its own


def _told(error: BaseException) -> dict[str, Any]:
    chain, link = [], error
    while link is not None and len(chain) < 10:
        chain.append(f"{type(link).__name__}: {str(link)[:300]}")
        link = link.__cause__ or link.__context__
    text = str(error)
    return {
        "error": type(error).__name__,
        "ours": isinstance(error, ParityError),
        "damaged": type(error).__name__ == "DamagedError",
        "message": text[:2000].encode("utf-8", "backslashreplace").decode(),
        "length": len(text),
        "printable": text.encode("utf-8", "replace").decode() == text,
        "chain": chain,
    }


def main(side: str, run: str, scratch: str, out: str) -> None:
    """Meet every entry of a side that has no line in the file yet."""
    lines = [json.loads(line) for line in Path(out).read_text().splitlines()] if Path(out).exists() else []
    met = {line["id"] for line in lines}
    watch = Watch()
    trainer = sides.load(side).build(SPEC, Path(run))
    good = {}
    for step in (OLDER, NEWEST):
        trainer.restore(step)
        good[step] = everything(trainer)
    trainer.close()
    limit = status("VmSize") + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with Path(out).open("a") as file:
        for entry in ENTRIES:
            if entry.side != side or entry.id in met:
                continue
            print(json.dumps({"id": entry.id, "met": False}), file=file, flush=True)
            box = sandbox(Path(run), Path(scratch) / f"{len(met)}-{os.getpid()}")
            met.add(entry.id)
            signal.alarm(SECONDS)
            result = meet(entry, box, watch, good)
            signal.alarm(0)
            print(json.dumps(result | {"met": True}), file=file, flush=True)
            shutil.rmtree(box.root)


if __name__ == "__main__":
    main(*sys.argv[1:])
