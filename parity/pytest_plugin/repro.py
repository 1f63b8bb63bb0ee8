"""What a red check needs to run again elsewhere, in one directory."""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parity.environment import describe_environment
from parity.results import Resumption, encode, overall
from parity.storage import plain, replace_file

__all__ = ["write_repro"]

REPRO_SCHEMA = "parity.repro/1"


def write_repro(
    parent: Path, root: Path, test: str, train: Callable[..., Any], call: Mapping[str, Any], found: Resumption,
    workdir: Path, part: int,
) -> Path:  # fmt: skip
    """Write what a red check needs to run again elsewhere; return the directory.

    In it: `verdict.json`, `verdict.txt`, `requirements.txt`, `repro.py`, `source.py`, a copy of the training
    function's file, and `folder/`: the folder of the run as the kill left it.

    Args:
        parent: Directory that takes one directory for each red check.
        root: Root directory of the tests.
        test: Node id of the test.
        train: The training function.
        call: `steps`, `stop_at`, `mode`, `scenarios`, `options` and `processes` of the check.
        found: The verdict.
        workdir: Directory in which the check ran.
        part: Number of the check within its test, from 1.
    """
    digest = hashlib.sha256(test.encode()).hexdigest()[:6]
    named = re.sub(r"[^\w.]+", "-", test.replace(".py::", "-")).strip("-")
    target = parent / (f"{named[:100]}-{digest}" + (f"-{part}" if part > 1 else ""))
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    source = _source(train, root, call)
    if source:
        shutil.copy2(root / source["file"], target / "source.py")  # not under its name: no test to collect
    folder = next((one for one in _killed(workdir, found.stop_at) if one.is_dir()), None)
    if folder is not None:
        shutil.copytree(folder, target / "folder", symlinks=True)
    kept = {
        "schema": REPRO_SCHEMA,
        "test": test,
        "root": str(root),
        "call": {**call, **source} if source else {key: call[key] for key in ("mode", "scenarios")},
        "verdict": overall([found.record()]),
        "resumption": plain(asdict(found)),
        "environment": describe_environment(),
    }
    installed = sorted({f"{one.name}=={one.version}" for one in importlib.metadata.distributions()}, key=str.lower)
    replace_file(target / "verdict.json", encode(kept) + "\n")
    replace_file(target / "verdict.txt", found.text(1000) + "\n")
    replace_file(target / "requirements.txt", "\n".join(installed) + "\n")
    replace_file(target / "repro.py", _REPRO)
    return target


def _source(train: Callable[..., Any], root: Path, call: Mapping[str, Any]) -> dict[str, Any]:
    """Return how another process finds a function; nothing where only its test can make it, or its options."""
    module = sys.modules.get(getattr(train, "__module__", None) or "")
    name = getattr(train, "__qualname__", "")
    if not inspect.isfunction(train) or module is None or getattr(module, name, None) is not train:
        return {}
    try:
        if json.loads(json.dumps(call["options"])) != call["options"]:
            return {}
    except (TypeError, ValueError):
        return {}
    file = Path(inspect.getfile(train)).resolve()
    path = [str(Path(entry).relative_to(root)) for entry in sys.path if Path(entry).is_relative_to(root)]
    return {
        "module": module.__name__,
        "function": name,
        "file": str(file.relative_to(root) if file.is_relative_to(root) else file),
        "path": [entry for entry in path if "site-packages" not in entry],
    }


def _killed(workdir: Path, stop_at: int) -> tuple[Path, ...]:
    """Return where a check leaves the folder of a run that was killed at `stop_at`, or by the last kill."""
    return workdir / f"killed-{stop_at}", workdir / "killed-left", workdir / "again-left", workdir / "again"


_REPRO = '''"""Runs a resume check again that was red: `python repro.py [ROOT]`.

ROOT is a copy of the repository, by default where the test ran. Without one, the copy of the training function's file
is used, source.py. Ends with the exit code of the verdict: 0 holds, 1 broken, 3 crashed, 4 inconclusive.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
KEPT = json.loads((HERE / "verdict.json").read_text(encoding="utf-8"))
CALL = KEPT["call"]
ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else KEPT["root"]).resolve()


def load():
    """Return the training function."""
    sys.path[:0] = [str(ROOT / entry) for entry in CALL["path"]]
    file = ROOT / CALL["file"]
    file = file if file.exists() else HERE / "source.py"
    print(f"checking {CALL['function']} of {file}", flush=True)
    spec = importlib.util.spec_from_file_location(CALL["module"], file)
    module = sys.modules[CALL["module"]] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, CALL["function"])


def main():
    """Run the check, or the test where the training function is made in it; return the exit code."""
    from parity.environment import compare_environments, describe_environment

    for line in compare_environments(KEPT["environment"], describe_environment()):
        print(line)
    if "function" not in CALL:
        options = [f"--parity-scenarios={CALL['scenarios']}", f"--parity-mode={CALL['mode']}"]
        command = [sys.executable, "-m", "pytest", f"--rootdir={ROOT}", *options, KEPT["test"]]
        return subprocess.run(command, cwd=ROOT, check=False).returncode
    import parity
    from parity.results import EXIT_CODES

    found = parity.resumes(
        load(), steps=CALL["steps"], stop_at=CALL["stop_at"], mode=CALL["mode"], scenarios=CALL["scenarios"],
        options=CALL["options"], name=KEPT["test"], processes=CALL.get("processes", 1),
    )
    print(found.text())
    return EXIT_CODES[found.verdict]


if __name__ == "__main__":
    raise SystemExit(main())
'''
