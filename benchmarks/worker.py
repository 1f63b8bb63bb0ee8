"""Arms in a process of their own: `python -m benchmarks.worker MODULE FUNCTION ARGUMENTS` builds them and waits.

For what a process can have only one of: a number of forced CPU devices, an import, a peak of memory. The parent times
the arm; a request and its answer over the pipe take some 50 microseconds.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.paired import Arm

__all__ = ["Worker"]


class Worker:
    """The parent's end: starts the process, offers its arms, ends it."""

    def __init__(self, function: str, **arguments: Any) -> None:
        """Start a process.

        Args:
            function: `module:function`; called with the arguments, it returns arms.
            arguments: What is plain JSON.
        """
        command = [sys.executable, "-m", "benchmarks.worker", function, json.dumps(arguments)]
        home = Path(__file__).resolve().parents[1]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=home)

    def ask(self, request: str) -> Any:
        """Send a line and return the answer.

        Raises:
            RuntimeError: The process ended; what it wrote on stderr says why.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"the worker ended with {self.process.wait()} when asked to {request!r}")
        return json.loads(line)

    def arm(self, name: str, own: str, steps: int | None = None) -> Arm:
        """Return one of its arms under another name."""
        return Arm(name=name, run=lambda: self.ask(f"run {own}"), reset=lambda: self.ask(f"reset {own}"), steps=steps)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the pipe, which ends the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        if self.process.wait(60) and kind is None:
            raise RuntimeError(f"the worker ended with {self.process.returncode}")


def serve(arms: Mapping[str, Arm]) -> None:
    """Answer `run ARM` with what it returned, and `reset ARM`, until the parent closes the pipe."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # what a library prints is no answer
    for line in sys.stdin:
        verb, name = line.split()
        arm = arms[name]
        result = arm.run() if verb == "run" else (arm.reset(), None)[1]
        answers.write(json.dumps(result) + "\n")
        answers.flush()


if __name__ == "__main__":
    module, _, name = sys.argv[1].partition(":")
    built = getattr(importlib.import_module(module), name)(**json.loads(sys.argv[2]))
    serve({arm.name: arm for arm in built})
