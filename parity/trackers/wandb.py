"""Runs of Weights & Biases, online or offline, in `<run>/wandb/`."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import wandb

from parity.contract import RunIdentity, nest_fields
from parity.errors import RunDirectoryError, explain
from parity.storage import make_directory, read_bytes, replace_file
from parity.trackers.history import History, Point

__all__ = ["WeightsAndBiases"]

WandbMode = Literal["online", "offline", "disabled", "shared"]

PROJECT = "parity"
"""Project of a run, unless WANDB_PROJECT names another."""
START_SECONDS = 30.0
"""Longest wait for the service at the start; after it the run is logged offline."""
FINISH_SECONDS = 60.0
"""Longest wait for the upload at the end; what is left can be uploaded with `wandb sync`."""


class WeightsAndBiases:
    """Logs to one run of Weights & Biases under one id, which `wandb/parity.json` keeps.

    Offline, each process leaves a directory of its own that holds the whole curve so far: what is uploaded under an
    id replaces what was there (https://github.com/wandb/wandb/issues/3841), so upload the newest.
    Online, a process joins the run. The service cannot replace a step that it has: a step that is repeated after a
    resume is not sent again if it is the same bit for bit; at the first that differs, a new run with the whole curve
    is begun, and the old one stays as it was.
    """

    def __init__(self) -> None:
        self._run: Any = None

    def open(self, history: History, identity: RunIdentity, report: Callable[[str], None]) -> None:
        """Join the run, and log what it lacks of the steps up to the start of this process."""
        self._history, self._identity, self._report = history, identity, report
        self._mode = self._choose_mode()
        if self._mode == "disabled":
            return
        make_directory(history.run.path / "wandb")
        self._note = history.run.path / "wandb" / "parity.json"
        self._id, self._logged_by = self._read_note()
        self._join()
        standing = history.standing(self._sent, self._logged_by)
        self._replaced = history.replaced(self._logged_by, standing, self._sent)
        self.log(history.points(after=standing, until=history.start))

    def log(self, points: Sequence[Point]) -> None:
        """Send points, those left out that the service has."""
        for point in points if self._run is not None else ():
            if point.step <= self._sent:
                if point.within(self._replaced.get(point.step)):
                    continue
                self._begin_another(point.step)
            if self._mode != "offline" and self._logged_by != self._history.attempt:
                self._logged_by = self._history.attempt  # only now all that the service has is this process's curve
                self._write_note()
            self._run.log(point.scalars, step=point.step)

    def close(self, *, failed: bool = False) -> None:
        """Upload what is not uploaded yet, or give up and leave it on disk."""
        if self._run is not None:
            self._run.finish(exit_code=int(failed))

    def _choose_mode(self) -> WandbMode:
        """Return the mode that WANDB_MODE or the settings ask for; offline without a login, and never a prompt."""
        mode = cast(WandbMode, wandb.setup().settings.mode)
        if mode == "online" and not wandb.login(prompt=False, verify=False):
            self._report("wandb: not logged in, so logging offline; `wandb sync` uploads it")
            return "offline"
        return mode

    def _join(self) -> None:
        """Open the run of our id, offline if the service cannot be reached."""
        try:
            self._run = self._init(self._mode)
        except Exception as error:  # of any kind: what is raised differs from one version to the next
            if self._mode == "offline":
                raise
            problem = " ".join(str(error).split())[:200]
            self._report(f"wandb: {problem}; logging offline, `wandb sync` uploads it")
            self._mode = "offline"
            self._run = self._init(self._mode)
        self._sent = max(int(self._run.step) - 1, 0)  # the step that comes next, 0 for a new run
        self._write_note()

    def _init(self, mode: WandbMode) -> Any:
        run = self._history.run.path
        return wandb.init(
            id=self._id,
            resume="allow",
            mode=mode,
            dir=str(run),
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=os.environ.get("WANDB_NAME", run.resolve().name),
            config=nest_fields(self._identity.fields),
            settings=wandb.Settings(
                silent=True, console="off", init_timeout=START_SECONDS, finish_timeout=FINISH_SECONDS
            ),
        )

    def _begin_another(self, step: int) -> None:
        """Begin a new run with the whole curve, because the service has another value for a step."""
        self._run.finish()
        self._id = f"{self._id.partition('-')[0]}-{self._history.attempt}"
        self._report(f"wandb: step {step} is not what it was before the resume; continuing as run {self._id}")
        self._logged_by, self._replaced = self._history.attempt, {}
        self._join()
        for point in self._history.points(after=0, until=step):
            self._run.log(point.scalars, step=point.step)

    def _write_note(self) -> None:
        replace_file(self._note, json.dumps({"id": self._id, "attempt": self._logged_by}) + "\n")

    def _read_note(self) -> tuple[str, int]:
        """Return the id, and the attempt whose curve the service has; a new id for a new run."""
        if not self._note.exists():
            return secrets.token_hex(6), self._history.attempt
        try:
            note = json.loads(read_bytes(self._note, failure=RunDirectoryError))
            return str(note["id"]), int(note["attempt"])
        except (ValueError, KeyError, TypeError) as error:
            raise RunDirectoryError(
                f"{self._note} cannot be read ({explain(error)}); remove it to begin a new run"
            ) from error
