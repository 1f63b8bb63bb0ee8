"""Weights & Biases shows the spliced curve of a run, online and offline, and never asks or hangs."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.spec.tables import to_dict
from parity.trackers import Trackers
from parity.trackers.wandb import WeightsAndBiases
from tests.support.small import quick
from tests.trackers.rehearsal import (
    IDENTITY,
    SPEC,
    Process,
    Rehearsal,
    expected,
    faults,
    recorded,
    stories,
    without_throughput,
)
from tests.trackers.service import Service


@pytest.fixture(autouse=True)
def _batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let seven records wait for each other, so that a kill loses up to six."""
    monkeypatch.setattr("parity.trackers.BATCH_SECONDS", 1e9)
    monkeypatch.setattr("parity.trackers.BATCH_RECORDS", 7)
    for name in ("WANDB_PROJECT", "WANDB_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    service = Service()
    monkeypatch.setattr("parity.trackers.wandb.wandb", service)
    return service


@pytest.fixture
def run(tmp_path: Path, service: Service) -> Rehearsal:
    return Rehearsal(tmp_path / "run", WeightsAndBiases, on_kill=lambda tracker: service.kill())


def wrong(run: Rehearsal, service: Service) -> list[str]:
    """Say what is wrong; a repeated step that is the same keeps the throughput it had first."""
    curve, shown = expected(run.path), service.shown()
    return faults(without_throughput(curve), without_throughput(shown)) + [
        f"refused: {service.refused[:5]}" for _ in service.refused[:1]
    ]


CASES = {
    "never interrupted": ([], 1),
    "ended and went on": ([Process(steps=40)], 1),
    "killed": ([Process(steps=55, killed=True)], 1),
    "killed twice in one place": ([Process(steps=55, killed=True), Process(steps=5, killed=True)], 1),
    "killed, and went on with other values": ([Process(steps=55, killed=True), Process(steps=5, variant=1)], 2),
    "killed before what differs was sent": (
        [Process(steps=55), Process(steps=5, variant=1, killed=True), Process(steps=40, variant=1)],
        2,
    ),
    "went back, and came to the same": ([Process(steps=80), Process(steps=10, back=2)], 1),
    "went back, and came to something else": ([Process(steps=80), Process(steps=10, back=2, variant=1)], 2),
    "ended before its last validation": ([Process(steps=30, unvalidated=True)], 2),
    "logged only from the second process on": ([Process(steps=60, logged=False)], 1),
    "another process in between, with other values": (
        [Process(steps=60), Process(steps=60, logged=False, back=1, variant=1)],
        2,
    ),
}
"""Name to the processes, and the runs that the service has of them in the end."""


@pytest.mark.parametrize("case", CASES)
def test_the_curve_is_the_spliced_one_and_no_step_is_sent_twice(run: Rehearsal, service: Service, case: str) -> None:
    story, runs = CASES[case]
    for process in story:
        run.play(process)
    run.finish(variant=story[-1].variant if story else 0)
    assert wrong(run, service) == []
    assert len(service.runs) == runs
    assert service.calls < 1200, "no more than the curve, twice, and its validations"
    assert all(line.startswith("wandb: step ") for line in run.said)


def test_a_process_with_nothing_left_to_train_makes_up_for_what_a_kill_kept_back(
    run: Rehearsal, service: Service
) -> None:
    run.play(Process(steps=60, killed=True))
    assert wrong(run, service)
    run.play(Process(steps=0))
    assert wrong(run, service) == []


@pytest.mark.takes_seconds
@quick(60)
@given(
    story=stories,
    modes=st.lists(st.sampled_from(["online", "offline"]), min_size=6, max_size=6),
    lost=st.sampled_from([0, 3, 25]),
)
def test_whatever_became_of_its_processes(
    story: list[Process], modes: list[str], lost: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    service = Service(lost=lost)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("parity.trackers.wandb.wandb", service)
        run = Rehearsal(
            tmp_path_factory.mktemp("story") / "run", WeightsAndBiases, on_kill=lambda tracker: service.kill()
        )
        for process, service.mode in zip(story, modes, strict=False):
            run.play(process)
        service.mode = modes[-1]
        run.finish()
    assert wrong(run, service) == []
    assert {len(rows) for name, rows in service.runs.items() if service.current and name == service.current.id} == {
        400
    }


def test_what_was_logged_offline_is_not_taken_for_what_the_service_has(run: Rehearsal, service: Service) -> None:
    run.play(Process(steps=55))
    service.mode = "offline"
    run.play(Process(steps=15, variant=1))
    service.mode = "online"
    run.finish(variant=1)
    assert wrong(run, service) == []


def test_every_process_joins_under_one_id_and_project_with_the_spec(run: Rehearsal, service: Service) -> None:
    run.play(Process(steps=40))
    run.finish()
    first, second = service.inits
    note = json.loads((run.path / "wandb" / "parity.json").read_text())
    assert note == {"id": first["id"], "attempt": 1}
    for options in (first, second):
        assert {name: options[name] for name in ("id", "resume", "mode", "project", "name", "dir")} == {
            "id": note["id"],
            "resume": "allow",
            "mode": "online",
            "project": "parity",
            "name": "run",
            "dir": str(run.path),
        }
        assert options["config"] == to_dict(SPEC)


def test_the_environment_names_project_and_run(
    run: Rehearsal, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "ours")
    monkeypatch.setenv("WANDB_NAME", "first")
    run.finish()
    assert (service.inits[0]["project"], service.inits[0]["name"]) == ("ours", "first")


def test_without_a_login_it_is_offline_and_nobody_is_asked(run: Rehearsal, service: Service) -> None:
    service.logged_in = False
    run.finish()
    assert service.logins == [{"prompt": False, "verify": False}]
    assert [options["mode"] for options in service.inits] == ["offline"]
    assert run.said == ["wandb: not logged in, so logging offline; `wandb sync` uploads it"]
    assert wrong(run, service) == []


@pytest.mark.parametrize(("mode", "inits"), [("offline", 1), ("disabled", 0)])
def test_a_mode_that_was_asked_for_is_honoured_without_a_login(
    run: Rehearsal, service: Service, mode: str, inits: int
) -> None:
    service.mode = mode
    run.finish()
    assert service.logins == []
    assert [options["mode"] for options in service.inits] == ["offline"] * inits
    assert run.said == []


def test_a_service_that_does_not_answer_at_the_start_is_logged_to_offline(run: Rehearsal, service: Service) -> None:
    service.unreachable = True
    run.finish()
    assert [options["mode"] for options in service.inits] == ["online", "offline"]
    assert run.said == ["wandb: no answer within 30 seconds; logging offline, `wandb sync` uploads it"]
    assert wrong(run, service) == []


def test_a_service_that_goes_down_switches_it_off_in_one_line_and_the_next_process_makes_up_for_it(
    run: Rehearsal, service: Service
) -> None:
    class Failing(WeightsAndBiases):
        def log(self, points):
            service.down = bool(points) and points[-1].step > 20
            super().log(points)

    run.tracker = Failing
    run.play(Process(steps=60))
    (line,) = run.said
    assert line.startswith("warning: it is off after step ")
    assert line.endswith(": the service is down; training continues without it")
    service.down, run.tracker = False, WeightsAndBiases
    run.finish()
    assert wrong(run, service) == []


def test_a_training_that_failed_is_marked_so(run: Rehearsal, service: Service) -> None:
    run.play(Process(steps=20))

    def fail() -> None:
        run.run.begin_attempt(1, 20, {})
        with Trackers({"wandb": WeightsAndBiases()}, run.path, IDENTITY, run.said.append) as tracked:
            tracked.on_record(recorded(21, 1, 0))
            raise RuntimeError("diverged")

    with pytest.raises(RuntimeError, match="diverged"):
        fail()
    assert service.exits == [0, 1]


def test_a_note_that_cannot_be_read_switches_it_off_and_is_named(run: Rehearsal, service: Service) -> None:
    run.play(Process(steps=20))
    (run.path / "wandb" / "parity.json").write_text("{}")
    run.play(Process(steps=20))
    (line,) = run.said
    assert "parity.json cannot be read (it has no 'id'); remove it to begin a new run" in line
