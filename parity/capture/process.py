"""State of the whole process beside generators: environment, decimal's context, NumPy's answer to errors, threads."""

from __future__ import annotations

import logging
import os
import sys
import threading
import types
import weakref

import numpy as np

from parity.capture.modules import is_of_user
from parity.capture.places import holds_of_user, is_thread_of_user
from parity.capture.registry import register
from parity.capture.walk import Walk

__all__ = ["OTHERS", "show_process"]

OTHERS = "threads that ran before"
"""Name under which a walk notes the threads that are of no concern: those that were there when the run began."""

_environment = dict(os.environ)
"""As it was when the capture was loaded: before the first mark of a run."""


def show_process(walk: Walk) -> None:
    """Show what was set since of the environment, decimal and NumPy, threads of the user, arguments of finalizers."""
    for name, value in os.environ.items():
        if _environment.get(name) != value and not name.startswith(_NOISY):
            walk.leaf(f"os.environ[{name!r}]", value, f"os.environ[{name!r}]", "scalar")
    if (decimal := sys.modules.get("decimal")) is not None:  # how many digits there are, and how the last is rounded
        for name in ("prec", "rounding"):
            value = getattr(decimal.getcontext(), name)
            if value != getattr(decimal.DefaultContext, name):
                walk.leaf(f"decimal.getcontext().{name}", value, f"decimal.getcontext().{name}", "scalar")
    # an overflow that is raised is another path than one that is ignored; shown in any case, so that it may change
    answers = ", ".join(f"{kind}={answer}" for kind, answer in np.geterr().items())
    walk.leaf("numpy.geterr()", answers, "numpy.geterr()", "scalar")
    _threads(walk)
    for name, logger in (("", logging.root), *list(logging.root.manager.loggerDict.items())):
        if isinstance(logger, logging.Logger) and holds_of_user(logger):
            walk.place(f"logging.getLogger({name!r})", logger)
    for at, one in enumerate(list(getattr(weakref.finalize, "_registry", ()))):
        alive = one.peek()
        if alive is not None and is_of_user(getattr(alive[1], "__module__", None)):
            walk.place(f"finalize[{at}]", one)


_NOISY = ("PYTEST_", "KMP_", "MASTER_ADDR", "MASTER_PORT", "JAX_COORDINATOR_ADDRESS", "TORCHINDUCTOR_CACHE_DIR")
"""Variables that a test runner and a library of threads set for themselves, with names of processes in them; where
the processes of one run meet; where PyTorch's compiler, which the first optimizer imports, keeps programs."""


class _Running(list[threading.Thread]):
    """Threads of the user that run at a mark."""


def _threads(walk: Walk) -> None:
    """Have the user's threads shown behind all else; those that ran before this run did are of another one."""
    before = {id(thread) for thread in walk.noted.get(OTHERS, ())}
    here = (threading.current_thread(), threading.main_thread())
    running = [thread for thread in threading.enumerate() if thread not in here and id(thread) not in before]
    if running:
        walk.place("threads", _Running(running))


def _show_threads(walk: Walk, path: str, value: _Running) -> None:
    """Show what threads hold that nothing else leads to; what runs in them is in motion, and listed as not seen.

    Whether a thread has come to its end at a mark is a matter of time: one that a variable holds has no second path,
    and takes no number from those that none holds.
    """
    frames = sys._current_frames()
    found = 0
    for thread in value:
        function = _of_user(frames.get(thread.ident or 0))
        if not function and not is_thread_of_user(thread):
            continue
        held = walk.first_path(id(thread))
        shown = held or f"{path}[{found}]"
        if function:
            walk.snapshot.unseen[f"{shown}.{function}()"] = "variables of a running thread"
        if held is None:
            walk.visit(shown, thread)
            found += 1


register(_Running, _show_threads)


def _of_user(frame: types.FrameType | None) -> str:
    while frame is not None:
        if is_of_user(frame.f_globals.get("__name__")):
            return frame.f_code.co_name
        frame = frame.f_back
    return ""
