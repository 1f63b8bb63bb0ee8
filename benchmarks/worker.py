"""Arms in processes of their own: `python -m benchmarks.worker MODULE FUNCTION ARGUMENTS` builds them and waits.

For what a process can have only one of: a number of forced CPU devices, an import, a peak of memory; and for arms
that several processes run together. The parent times the arm; a request and its answer over the pipe take some 50
microseconds.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from benchmarks.paired import Arm
from parity.runs import variables

__all__ = ["Worker"]


class Worker:
    """The parent's end: starts the processes, offers their arms, ends them."""

    def __init__(self, function: str, *, processes: int = 1, **arguments: Any) -> None:
        """Start them.

        Args:
            function: `module:function`; called with the arguments, it returns arms.
            processes: How many run every arm together; each finds its place as those of `parity launch` do.
            arguments: What is plain JSON.
        """
        command = [sys.executable, "-m", "benchmarks.worker", function, json.dumps(arguments)]
        home = Path(__file__).resolve().parents[1]
        with socket.create_server(("localhost", 0)) as free:
            port = free.getsockname()[1]
        places = [variables(index, processes, port) if processes > 1 else {} for index in range(processes)]
        self.processes = [
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=home, env={**os.environ, **own}
            )
            for own in places
        ]

    def ask(self, request: str) -> Any:
        """Send a line to all of them and return the answer of the first, once all have answered.

        Raises:
            RuntimeError: A process ended; what it wrote on stderr says why.
        """
        lines = []
        for process in self.processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write(request + "\n")
                process.stdin.flush()
        for process in self.processes:
            assert process.stdout is not None
            lines.append(process.stdout.readline())
            if not lines[-1]:
                raise RuntimeError(f"the worker ended with {process.wait()} when asked to {request!r}")
        return json.loads(lines[0])

    def arm(self, name: str, own: str, steps: int | None = None) -> Arm:
        """Return one of its arms under another name."""
        return Arm(name=name, run=lambda: self.ask(f"run {own}"), reset=lambda: self.ask(f"reset {own}"), steps=steps)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the pipes, which ends the processes; after an error they are killed, as they may wait for another."""
        for process in self.processes:
            if kind is not None:
                process.kill()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with suppress(BrokenPipeError):
                    pipe.close()
        codes = [process.wait(60) for process in self.processes]
        if any(codes) and kind is None:
            raise RuntimeError(f"the worker ended with {next(filter(None, codes))}")


def serve(arms: Mapping[str, Arm], answers: TextIO) -> None:
    """Answer `run ARM` with what it returned, and `reset ARM`, until the parent closes the pipe."""
    for line in sys.stdin:
        verb, name = line.split()
        arm = arms[name]
        result = arm.run() if verb == "run" else (arm.reset(), None)[1]
        answers.write(json.dumps(result) + "\n")
        answers.flush()


if __name__ == "__main__":
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints, Gloo beneath Python too, is no answer
    module, _, name = sys.argv[1].partition(":")
    built = getattr(importlib.import_module(module), name)(**json.loads(sys.argv[2]))
    serve({arm.name: arm for arm in built}, out)
