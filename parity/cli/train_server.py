"""The process that forks training processes: `python -m parity.cli.train_server DESCRIPTOR PARENT`.

It imports a side, trains nothing, and waits; `parity.cli.train_forks` starts it.
"""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import parity.cli.train  # noqa: F401  loaded once, and not again in each process
from parity import sides
from parity.cli.main import main
from parity.contract import prepare_process
from parity.errors import ParityError
from parity.forks import serve

__all__: list[str] = []


class _Training:
    """Forked processes each run one command line of `parity`."""

    def prepare(self, requests: Connection) -> bool:
        try:
            side = sides.load(requests.recv())
        except (ParityError, EOFError):  # a new interpreter says why
            return False
        with suppress(AttributeError):
            _ = side.build, side.topology  # imported when they are first used
        prepare_process(side)
        gc.collect()
        gc.freeze()  # a collection in a forked process would touch, and so copy, every page
        return True

    def load(self, what: Any) -> bool:
        del what
        return True

    def run(self, descriptor: int, given: Sequence[Any]) -> int:
        """Train; what nobody has seeded differs from process to process, as in new interpreters."""
        os.setpgid(0, 0)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        os.close(descriptor)
        random.seed()
        np.random.seed()  # noqa: NPY002  the global one, which code of others may use
        (words,) = given
        words = [sys.argv[0], *words]
        if "--with-parent" in words:
            words[words.index("--with-parent") + 1] = str(os.getppid())
        sys.argv = words
        return main()


if __name__ == "__main__":
    number, parent = map(int, sys.argv[1:])
    sys.exit(serve(Connection(number), parent, _Training()))  # type: ignore[arg-type]
