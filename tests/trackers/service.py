"""A stand-in for the package of Weights & Biases and the service behind it, with their rules for steps.

A row is committed when one of a later step comes, or at the end; a row of a step that is there already is refused.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tests.trackers.rehearsal import Shown


@dataclass
class Run:
    """One process's hold on a run."""

    service: "Service"
    id: str
    config: dict[str, Any]
    pending: tuple[int, dict[str, float]] | None = None
    finished: bool = False

    @property
    def step(self) -> int:
        if self.pending is not None:
            return self.pending[0]
        rows = self.service.rows(self)
        return max(rows) + 1 if rows else 0

    def log(self, scalars: dict[str, float], *, step: int) -> None:
        if self.service.down:
            raise ConnectionError("the service is down")
        assert not self.finished
        self.service.calls += 1
        if step < self.step:
            self.service.refused.append(step)
        elif self.pending is not None and self.pending[0] == step:
            self.pending[1].update(scalars)
        else:
            self._commit()
            self.pending = (step, dict(scalars))

    def finish(self, exit_code: int = 0) -> None:
        self._commit()
        self.finished = True
        self.service.exits.append(exit_code)

    def _commit(self) -> None:
        if self.pending is not None:
            self.service.rows(self)[self.pending[0]] = self.pending[1]
            self.pending = None


@dataclass
class Service:
    """What stands in for the module `wandb`."""

    mode: str = "online"
    logged_in: bool = True
    unreachable: bool = False
    """Whether no run can be opened online."""
    down: bool = False
    """Whether a run that is open takes no more."""
    lost: int = 0
    """Committed rows that a kill keeps from the service."""
    runs: dict[str, dict[int, dict[str, float]]] = field(default_factory=dict)
    refused: list[int] = field(default_factory=list)
    calls: int = 0
    exits: list[int] = field(default_factory=list)
    inits: list[dict[str, Any]] = field(default_factory=list)
    logins: list[dict[str, Any]] = field(default_factory=list)
    current: Run | None = None

    def setup(self) -> Any:
        return SimpleNamespace(settings=SimpleNamespace(mode=self.mode))

    def login(self, **options: Any) -> bool:
        self.logins.append(options)
        return self.logged_in

    def Settings(self, **options: Any) -> dict[str, Any]:
        return options

    def init(self, **options: Any) -> Run:
        self.inits.append(options)
        if options["mode"] == "online" and self.unreachable:
            raise TimeoutError("no answer within 30 seconds")
        key = options["id"] if options["mode"] == "online" else f"offline {len(self.inits)}"
        self.current = Run(self, key, options["config"])
        return self.current

    def rows(self, run: Run) -> dict[int, dict[str, float]]:
        return self.runs.setdefault(run.id, {})

    def kill(self) -> None:
        """End a process by force: what is pending is lost, and what was still on its way."""
        assert self.current is not None
        rows = self.rows(self.current)
        for step in sorted(rows)[len(rows) - min(self.lost, len(rows)) :]:
            del rows[step]

    def shown(self) -> Shown:
        """Return the curve of the run that was logged to last."""
        assert self.current is not None
        shown: Shown = {}
        for step, row in sorted(self.rows(self.current).items()):
            for tag, value in row.items():
                shown.setdefault(tag, []).append((step, value))
        return shown
