"""What the pytest plugin writes and reads: baseline curves, directories that run a red check again, the report.

Loaded when one of these is needed, so that it costs the start of pytest nothing.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import json
import math
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parity.environment import compare_environments, describe_environment, versions
from parity.errors import ResultError, SpecError
from parity.report import check_markdown
from parity.report.html import check_page
from parity.results import CheckRecord, CheckResult, Resumption, document, encode, overall, read_result
from parity.storage import parse_json, plain, read_given, replace_file

__all__ = ["CurveDiffersError", "CurveError", "check_curve", "pack", "write_report", "write_repro"]

CURVE_SCHEMA = "parity.curve/1"
REPRO_SCHEMA = "parity.repro/1"
MOST_BYTES = 64 << 20
"""Largest baseline that is read."""


class CurveError(AssertionError):
    """A curve that is not its baseline, or that cannot be compared with one."""


class CurveDiffersError(CurveError):
    """A curve that is not its baseline."""


def check_curve(path: Path, values: object, *, rtol: float, atol: float, update: bool, test: str) -> int:
    """Compare a curve with its baseline, or write it as the new one.

    Args:
        path: File of the baseline.
        values: One number for each step, or step to number.
        rtol: Largest difference that passes, relative to the baseline; with both 0, bits must be equal.
        atol: Largest difference that passes, beside the relative one.
        update: Whether to write the baseline; then nothing is compared.
        test: The test that keeps it.

    Returns:
        Number of steps that were compared, or written.

    Raises:
        CurveDiffersError: It differs.
        CurveError: There is no baseline, or the two cannot be compared.
        SpecError: Arguments that cannot be used.
    """
    for word, allowed in (("rtol", rtol), ("atol", atol)):
        if not 0 <= allowed < math.inf:
            raise SpecError(word, f"must be a finite number of at least 0, got {allowed!r}")
    name, criterion = path.stem, {"rtol": float(rtol), "atol": float(atol)}
    got = _numbers(name, values)
    if update:
        _require_baseline(name, got)
        path.parent.mkdir(parents=True, exist_ok=True)
        new = {
            "schema": CURVE_SCHEMA,
            "test": test,
            "criterion": criterion,
            "steps": list(got),
            "values": list(got.values()),  # JSON writes the shortest text that is read back to the same bits
            "versions": dict(versions()),
        }
        replace_file(path, encode(new) + "\n")
        return len(got)
    kept, expected = _read_baseline(path)
    if kept["criterion"] != criterion:
        raise CurveError(
            f"curve {name!r}: its baseline was kept for {kept['criterion']}, the test asks for {criterion}; "
            f"run with --parity-update to keep the new criterion\n  baseline  {path}"
        )
    _compare(name, expected, got, rtol, atol, _surroundings(path, kept["versions"]))
    return len(got)


def _numbers(name: str, values: object) -> dict[int, float]:
    """Return step to value."""
    if isinstance(values, Mapping):
        rows: Iterable[tuple[Any, Any]] = values.items()
    elif isinstance(values, Iterable) and not isinstance(values, str | bytes):
        rows = enumerate(values)
    else:
        raise SpecError(f"curve {name!r}", f"must be numbers, or step to number, got {type(values).__name__}")
    found: dict[int, float] = {}
    for step, value in rows:
        try:
            found[int(step)] = float(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise SpecError(f"curve {name!r}", f"step {step!r} has no number: {error}") from None
    if not found:
        raise CurveError(f"curve {name!r} has no step: there is nothing to compare")
    return found


def _require_baseline(name: str, values: Mapping[int, float]) -> None:
    """Raise CurveError where no later curve could be judged by this one."""
    bad = next((step for step, value in values.items() if not math.isfinite(value)), None)
    if bad is not None:
        raise CurveError(f"curve {name!r} is {values[bad]} at step {bad}: this is no baseline; nothing was written")
    if not any(values.values()):
        raise CurveError(f"curve {name!r} is 0 at every step: it shows nothing; nothing was written")


def _read_baseline(path: Path) -> tuple[dict[str, Any], dict[int, float]]:
    if not path.exists():
        raise CurveError(
            f"curve {path.stem!r} has no baseline: run with --parity-update, look at what it writes, and commit it\n"
            f"  expected  {path}"
        )
    try:
        kept = parse_json(read_given(path, MOST_BYTES), path, ResultError)
        if kept.get("schema") != CURVE_SCHEMA:
            raise ResultError(f"{path}: schema is {kept.get('schema')!r}, this version reads {CURVE_SCHEMA!r}")
        numbers = {int(step): float(value) for step, value in zip(kept["steps"], kept["values"], strict=True)}
        if not numbers or not {"rtol", "atol"} == set(kept["criterion"]) or not dict(kept["versions"]):
            raise ResultError(f"{path}: steps, criterion or versions are missing")
    except (OSError, ResultError, KeyError, TypeError, ValueError) as error:
        raise CurveError(f"curve {path.stem!r}: its baseline cannot be used: {error}") from None
    return kept, numbers


def _compare(
    name: str, expected: Mapping[int, float], got: Mapping[int, float], rtol: float, atol: float, rest: str
) -> None:
    if len(expected) != len(got):
        raise CurveError(
            f"curve {name!r} has {len(got)} steps, its baseline {len(expected)}: nothing was judged{rest}"
        )
    if list(expected) != list(got):
        step, other = next((a, b) for a, b in zip(expected, got, strict=True) if a != b)
        raise CurveError(
            f"curve {name!r} has step {other} where its baseline has step {step}: nothing was judged{rest}"
        )
    for step in expected:
        if not math.isfinite(expected[step]) and not math.isfinite(got[step]):
            raise CurveError(
                f"curve {name!r} is {got[step]} at step {step}, its baseline {expected[step]}: "
                f"from there on nothing can be judged{rest}"
            )
    differing = [step for step in expected if not _agree(expected[step], got[step], rtol, atol)]
    if differing:
        step = differing[0]
        a, b = expected[step], got[step]
        relative = f", relative {abs(b - a) / abs(a):.3g}" if a else ""
        allowed = f"rtol {rtol:g}, atol {atol:g}" if rtol or atol else "equal bits"
        raise CurveDiffersError(
            f"curve {name!r} differs from its baseline first at step {step}; "
            f"{len(differing)} of {len(got)} steps differ\n"
            f"  expected  {a!r}  ({a.hex()})\n  got       {b!r}  ({b.hex()})\n"
            f"  differs   by {abs(b - a):.3g}{relative}; allowed: {allowed}{rest}\n"
            "if the change is meant, run with --parity-update"
        )


def _agree(expected: float, got: float, rtol: float, atol: float) -> bool:
    if rtol or atol:
        return abs(got - expected) <= atol + rtol * abs(expected)  # False for NaN and infinity
    return expected.hex() == got.hex()  # 0 and -0 differ


def _surroundings(path: Path, kept: Mapping[str, str]) -> str:
    """Return the lines about the baseline that every message ends with."""
    changed = compare_environments({"versions": kept}, {"versions": dict(versions())}, ("versions",), "installations")
    return f"\n  baseline  {path}" + "".join(f"\n  {line}" for line in changed[:5])


# Report


def pack(record: CheckRecord) -> str:
    """Return a record as text, for the process that writes the report."""
    return encode(document([record], {}))


def write_report(directory: Path, packed: Iterable[str], command: str, seconds: float) -> CheckResult:
    """Write `check.json`, `check.md` and `index.html`, as `parity check --report` does; return what is in them.

    Args:
        directory: Where they go; made if there is none.
        packed: Records, as `pack` returned them.
        command: The command line, for the report.
        seconds: What the session took.

    Raises:
        OSError: A file cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    records: list[CheckRecord] = []
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        for text in packed:
            file = Path(scratch, "record.json")
            file.write_text(text, encoding="utf-8")
            found = read_result(file)
            assert isinstance(found, CheckResult)
            records += found.records
    environment = describe_environment() | {"command": command, "devices": {}, "seconds": round(seconds, 1)}
    replace_file(directory / "check.json", encode(document(records, environment)) + "\n")
    replace_file(directory / "check.md", check_markdown(records, environment))
    replace_file(directory / "index.html", check_page(records, environment))
    return CheckResult(records=tuple(records), environment=environment)


# What a red check needs to run again


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
        call: `steps`, `stop_at`, `mode`, `roads` and `options` of the check.
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
    folder = _killed_folder(workdir, found.stop_at)
    if folder is not None:
        shutil.copytree(folder, target / "folder", symlinks=True)
    kept = {
        "schema": REPRO_SCHEMA,
        "test": test,
        "root": str(root),
        "call": {**call, **source} if source else {key: call[key] for key in ("mode", "roads")},
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


def _killed_folder(workdir: Path, stop_at: int) -> Path | None:
    """Return the copy of the folder that the kill at `stop_at` left, or of the last kill."""
    return next((one for one in _killed(workdir, stop_at) if one.is_dir()), None)


def _killed(workdir: Path, stop_at: int) -> tuple[Path, ...]:
    """Return where a check leaves the folder of a killed run."""
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
        options = [f"--parity-roads={CALL['roads']}", f"--parity-mode={CALL['mode']}"]
        command = [sys.executable, "-m", "pytest", f"--rootdir={ROOT}", *options, KEPT["test"]]
        return subprocess.run(command, cwd=ROOT, check=False).returncode
    import parity
    from parity.results import EXIT_CODES

    found = parity.resumes(
        load(), steps=CALL["steps"], stop_at=CALL["stop_at"], mode=CALL["mode"], roads=CALL["roads"],
        options=CALL["options"], name=KEPT["test"],
    )
    print(found.text())
    return EXIT_CODES[found.verdict]


if __name__ == "__main__":
    raise SystemExit(main())
'''
