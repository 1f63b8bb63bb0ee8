"""What the version before wrote is read: run directories, checkpoints, results of checks and of benchmarks."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parity import sides
from parity.checkpoints import FILE, compare, read_seal, verify
from parity.cli.main import main
from parity.contract import StepRecord, read_records
from parity.policy import best
from parity.results import EXIT_CODES
from parity.runs import QUIET, Observers, ProcessOptions, RunDirectory, train
from parity.spec import from_toml
from parity.state import compare_digests, schema_of
from tests.support.sealed import flip
from tests.support.small import bits_of

BEFORE = Path(__file__).resolve().parents[1] / "fixtures" / "before_2026_11"
STEPS = 12
RUNS = ("torch-float32", "torch-float64", "jax-float32", "jax-float64")
CHECKPOINTS = sorted(
    f"{path.parents[1].name}/{path.name}" for path in BEFORE.glob("*-float*/checkpoints/*") if path.name.isdigit()
)
each_run = pytest.mark.parametrize("name", RUNS)
each_checkpoint = pytest.mark.parametrize("name", CHECKPOINTS)


def checkpoint(name: str) -> Path:
    run, _, step = name.partition("/")
    return BEFORE / run / "checkpoints" / step


def copied(name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(BEFORE / name, tmp_path / name))


def curve(run: Path) -> list[tuple[Any, ...]]:
    """Return the bits of every step of a run, of steps that were trained twice the later ones."""
    records = {record.step: record for record in read_records(run / "steps.jsonl", StepRecord)}
    return bits_of([records[step] for step in sorted(records)])


def test_both_sides_and_every_precision_are_here() -> None:
    assert len(CHECKPOINTS) == 11, "of one run the second save was killed"
    assert {name.partition("-")[0] for name in CHECKPOINTS} == {"jax", "torch"}


@each_checkpoint
def test_a_checkpoint_is_whole_and_of_schema_1(name: str, capsys: Any) -> None:
    seal = read_seal(checkpoint(name))
    assert seal.schema == 1
    assert {schema_of(text) for text in seal.leaves.values()} == {1}
    assert verify(checkpoint(name)).whole
    assert main(["verify", str(checkpoint(name))]) == 0
    assert capsys.readouterr().out.startswith("whole")


@pytest.mark.takes_seconds("jax-float16/2", "jax-float16/4", "jax-float64/4")
@each_checkpoint
def test_a_flipped_bit_in_any_file_is_found_and_named(name: str, tmp_path: Path) -> None:
    path = Path(shutil.copytree(checkpoint(name), tmp_path / name.rpartition("/")[2]))
    seal = read_seal(path)
    for file, digest in seal.files.items():
        for offset in {0, digest.size // 2, digest.size - 1} if digest.size else set():
            flip(path / file, offset)
            hit = {
                leaf
                for leaf, places in seal.places.items()
                if any(p.file == file and p.start <= offset < p.start + p.size for p in places)
            }
            assert [(fault.file, set(fault.leaves)) for fault in verify(path).faults] == [(file, hit)]
            flip(path / file, offset)
    for offset in range(0, (path / FILE).stat().st_size, 97):
        flip(path / FILE, offset)
        assert [fault.file for fault in verify(path).faults] == [FILE]
        flip(path / FILE, offset)
    assert verify(path).whole


@pytest.mark.takes_seconds
@each_run
def test_a_run_continues_as_if_it_had_never_stopped(name: str, tmp_path: Path, capsys: Any) -> None:
    """Bit for bit, if this machine computes the steps that were recorded then with the same bits."""
    run, side = copied(name, tmp_path), name.partition("-")[0]
    recorded, step = curve(run), max(s.step for s in RunDirectory(run).store.scan().whole)
    spec = replace(from_toml(RunDirectory(run).identity_text()), steps=STEPS)
    said: list[str] = []
    train(sides.load(side), side, spec, run, ProcessOptions(), Observers(log=said.append))
    assert f"resumed from step {step} (latest)" in said
    train(sides.load(side), side, spec, tmp_path / "anew", ProcessOptions(), QUIET)
    continued, anew = curve(run), curve(tmp_path / "anew")
    assert len(continued) == len(anew) == STEPS
    seals = [read_seal(path / "checkpoints" / str(STEPS)) for path in (run, tmp_path / "anew")]
    assert [seal.schema for seal in seals] == [2, 2]
    if anew[:step] == recorded[:step]:
        assert continued == anew
        late = {"best"} if name == "torch-float32" else set()  # it was given a metric afterwards
        assert {d.leaf for d in compare_digests(seals[0].leaves, seals[1].leaves)} == late
    assert main(["verify", str(run)]) == 0, "checkpoints of both schemas beside each other"
    assert len(capsys.readouterr().out.splitlines()) == STEPS // 4


@pytest.mark.takes_seconds
@each_run
def test_a_checkpoint_restored_and_saved_again_has_equal_leaves(name: str, tmp_path: Path) -> None:
    run, side = copied(name, tmp_path), name.partition("-")[0]
    trainer = sides.load(side).build(from_toml(RunDirectory(run).identity_text()), run)
    step = trainer.restore("latest")
    old = (run / "checkpoints" / str(step)).rename(tmp_path / "old")
    trainer.save(None)
    trainer.close()
    new = run / "checkpoints" / str(step)
    assert (read_seal(old).schema, read_seal(new).schema) == (1, 2)
    for a, b in ((old, new), (new, old)):
        assert {d.leaf for d in compare(a, b)} == {"best"}, "the save without a metric is of another best"


@each_run
def test_the_newest_checkpoint_is_named_and_exported(name: str, tmp_path: Path, capsys: Any) -> None:
    step = max(s.step for s in RunDirectory(BEFORE / name).store.scan().whole)
    assert main(["path", str(BEFORE / name), "latest"]) == 0
    assert capsys.readouterr().out.strip().endswith(f"{name}/checkpoints/{step}")
    assert main(["export", str(BEFORE / name), "latest", str(tmp_path / "shipped")]) == 0
    assert verify(tmp_path / "shipped").whole


def test_a_metric_that_came_later_still_makes_the_best() -> None:
    run = RunDirectory(BEFORE / "torch-float32")
    found = best(run.store.scan().whole, "max")
    assert (found.step, found.metric) == (4, 0.9)  # type: ignore[union-attr]


def test_results_are_shown_and_compared(tmp_path: Path, capsys: Any) -> None:
    check, other, bench = (str(BEFORE / name) for name in ("check/check.json", "other/check.json", "bench.json"))
    assert main(["report", check, "--html", str(tmp_path / "page.html")]) == 0
    assert main(["report", bench]) == EXIT_CODES["inconclusive"], "no ratio has a bar"
    assert "restore" in capsys.readouterr().out
    for page in (tmp_path / "page.html", BEFORE / "check" / "index.html"):
        text = page.read_text(encoding="utf-8")
        assert all(record["verdict"] in text for record in json.loads(Path(check).read_text())["checks"])
    assert main(["report", "--compare", check, check]) == 0
    assert main(["report", "--compare", bench, bench]) in (0, EXIT_CODES["inconclusive"])
    capsys.readouterr()
    main(["report", "--compare", check, other])
    assert "mlp-digits" in capsys.readouterr().out
