"""Orbax's manager with a seal: each step is sealed before its rename, and its errors name file and reason."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from jax_side.formats.items import handler
from jax_side.processes import barrier
from parity import storage
from parity.checkpoints import DRAFT
from parity.errors import CheckpointError
from parity.storage import read_json

__all__ = ["DRAFT_SUFFIX", "drafts", "open_manager", "reason"]

DRAFT_SUFFIX = ".orbax-checkpoint-tmp"
"""What Orbax appends to the name of a directory that it is still writing."""

drafts = (f"*{DRAFT_SUFFIX}*",)
"""Patterns of the names that a save by Orbax leaves when it is cut short."""


def open_manager(checkpoints: Path, items: Iterable[str], seal: Callable[[int, Path], None]) -> ocp.CheckpointManager:
    """Open Orbax's manager on a directory of steps; it writes them and removes none.

    Args:
        checkpoints: The directory, which exists.
        items: Names of the items that are trees of arrays; `meta`, a JSON object, is one more.
        seal: Called in a thread of process 0 with the step and its finished draft; it renames the draft.
    """
    handlers = ocp.handlers.DefaultCheckpointHandlerRegistry()
    for item in items:
        handlers.add(item, ocp.args.PyTreeSave, handler())
    handlers.add("meta", ocp.args.JsonSave, ocp.JsonCheckpointHandler())
    options = ocp.CheckpointManagerOptions(
        enable_async_checkpointing=jax.process_count() > 1,  # a single process saves in a thread of ours
        async_options=ocp.AsyncOptions(barrier_sync_fn=barrier()) if jax.process_count() > 1 else None,
        create=False,
        temporary_path_class=_sealing_path(checkpoints, seal),
        step_name_format=_readable_steps(),
    )
    return ocp.CheckpointManager(checkpoints.resolve(), options=options, handler_registry=handlers)


def reason(error: BaseException, operation: str, draft: Path) -> str:
    """Return why a save by Orbax failed, in one line: operation, file and the system's reason.

    Orbax names no file where a write fails. TensorStore's errors are chains of sentences, the innermost last, beside
    the whole specification of an array.

    Args:
        error: What it raised.
        operation: What it was doing, where the error does not say.
        draft: What it was writing, likewise.
    """
    text = re.sub(r" \[tensorstore_spec='.*?'\] ?", " ", str(error))
    code = re.search(r"os_error_code='(\d+)'", text)
    if code is None:
        return storage.reason(error, operation, draft)
    failed = re.findall(r"Failed (?:to )?([a-z]+)", text)
    files = re.findall(re.escape(str(draft.parent.resolve())) + r"[^\s\"'\\:]*", text)
    file = files[-1].rstrip("/") if files else draft
    return f"{failed[-1] if failed else operation} {file}: {os.strerror(int(code[1]))}"


def _readable_steps() -> Any:
    """Return Orbax's own names of steps, without those whose description it cannot read.

    Orbax reads the description of every step when a manager opens, and a single bad one would stop every save.
    """
    standard = ocp.path.step.standard_name_format()

    class Readable(type(standard)):  # type: ignore[misc]
        def find_all(self, base_path: Any) -> Any:
            return (step for step in super().find_all(base_path) if _has_description(Path(step.path)))

    return Readable(**{f.name: getattr(standard, f.name) for f in fields(standard)})


def _has_description(step: Path) -> bool:
    try:
        read_json(step / "_CHECKPOINT_METADATA")
    except CheckpointError:
        return False
    return True


def _sealing_path(
    checkpoints: Path, seal: Callable[[int, Path], None]
) -> type[ocp.path.atomicity.AtomicRenameTemporaryPath]:
    """Return Orbax's temporary path with one phase more: a step is sealed before it gets its final name.

    Args:
        checkpoints: The directory of the steps.
        seal: Called in a thread of process 0 with the step and its finished draft; it renames the draft.
    """
    home = checkpoints.resolve()

    class SealedPath(ocp.path.atomicity.AtomicRenameTemporaryPath):
        def __init__(self, temporary_path: Any, final_path: Any, **options: Any) -> None:
            super().__init__(temporary_path, final_path, **options)
            name = f"{DRAFT}{final_path.name}-{os.getpid()}"
            self._draft = ocp.path.atomicity.AtomicRenameTemporaryPath(
                temporary_path, final_path.with_name(name), **options
            )

        async def finalize(self) -> None:
            final = Path(self.get_final())
            if final.parent != home:  # an item inside a step
                await super().finalize()
                return
            await self._draft.finalize()  # Orbax writes its commit marker and renames, to a name of ours
            await asyncio.to_thread(seal, int(final.name), Path(self._draft.get_final()))

    return SealedPath
