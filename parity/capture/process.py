"""State of the whole process beside generators: environment, decimal's context, NumPy's answer to errors, threads."""

from __future__ import annotations

import logging
import os
import sys
import threading
import types
import weakref
from typing import Any

import numpy as np

from parity.capture.modules import is_of_user
from parity.capture.places import holds_of_user
from parity.capture.walk import Walk

__all__ = ["show_process"]

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


def _threads(walk: Walk) -> None:
    """Show what a user's threads hold; what runs in them is in motion, so its variables are listed as not seen."""
    frames = sys._current_frames()
    found = 0
    for thread in threading.enumerate():
        frame: types.FrameType | None = frames.get(thread.ident or 0)
        if thread is threading.current_thread() or thread is threading.main_thread():
            continue
        function = _of_user(frame)
        if function or is_of_user(type(thread).__module__) or _is_users(getattr(thread, "_target", None)):
            walk.place(f"threads[{found}]", thread)
            if function:
                walk.snapshot.unseen[f"threads[{found}].{function}()"] = "variables of a running thread"
            found += 1


def _of_user(frame: types.FrameType | None) -> str:
    while frame is not None:
        if is_of_user(frame.f_globals.get("__name__")):
            return frame.f_code.co_name
        frame = frame.f_back
    return ""


def _is_users(target: Any) -> bool:
    name = getattr(target, "__module__", None)
    return isinstance(name, str) and is_of_user(name)
