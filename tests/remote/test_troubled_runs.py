"""Whole runs with a store in trouble: nothing is lost, nothing half counts as whole, and the training is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parity.cli import main
from parity.runs import copies
from parity.storage.stores import connect
from tests.remote.server import Fault, Request, Server, every
from tests.remote.test_runs import URL, all_whole, quickly, records, rows, words

__all__ = ["quickly"]

FAULTS = ("500", "503", "429", "cut", "lost", "slow", "silent", "torn")
REQUESTS = 60
"""More than a run of three checkpoints makes."""
soak = pytest.mark.soak


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Return the losses of the same run without a store."""
    home = tmp_path_factory.mktemp("undisturbed")
    assert main(words(home / "run", 40, url="")) == 0
    return records(home / "run")


@pytest.fixture(autouse=True)
def impatient(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the client give a request up within half a second, and the server be slow by less."""
    monkeypatch.setattr(connect, "REQUEST_SECONDS", 0.4)
    monkeypatch.setattr(server, "late", 0.1)


def trained_in(trouble: Callable[[Request], Fault | None], server: Server, home: Path) -> int:
    """Train in trouble, then to the end without; return the exit code of the first."""
    server.requests.clear()
    server.trouble = trouble
    try:
        code = main(words(home, 30))
    finally:
        server.trouble = lambda request: None
    if not home.exists():  # whether there is something to continue from is unknown then
        assert code == 3
    assert code in (0, 3), code
    assert main(words(home, 40)) == 0
    return code


def cases(kinds: tuple[str, ...], number: int, others: tuple[int, ...]) -> list[Any]:
    """Return each fault with each number; those that are named are quick, all others wait for the soak."""
    quick = [(kind, number) for kind in kinds]
    rest = [(kind, other) for kind in FAULTS for other in (number, *others) if (kind, other) not in quick]
    return [pytest.param(*one) for one in quick] + [pytest.param(*one, marks=soak) for one in rest]


@pytest.mark.parametrize(("fault", "number"), cases(("slow", "silent", "torn"), 11, (5, 9, 20)))
def test_every_so_many_requests_fail(
    fault: str, number: int, server: Server, tmp_path: Path, undisturbed: list[Any]
) -> None:
    trained_in(every(number, fault), server, tmp_path / "run")
    assert rows() == [20, 30, 40]
    assert all_whole()
    assert records(tmp_path / "run") == undisturbed


@pytest.mark.parametrize(("fault", "number"), cases(("503", "silent"), 20, (27, 35, 44)))
def test_all_requests_fail_from_one_on_until_the_next_start(
    fault: str, number: int, server: Server, tmp_path: Path, undisturbed: list[Any],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    code = trained_in(every(number, fault, from_then_on=True), server, tmp_path / "run")
    told = capsys.readouterr()
    if fault not in ("slow", "cut"):  # an answer to a put has no body that could be cut
        assert code == 3
        assert "training continues, and checkpoints are copied later" in told.out
        assert "the next start of the run copies them" in told.err
        assert "copied step 40" in told.out
    assert rows() == [20, 30, 40]
    assert all_whole()
    assert records(tmp_path / "run") == undisturbed


@pytest.mark.parametrize("fault", ["503", "torn", *(pytest.param(one, marks=soak) for one in FAULTS[2:-1])])
def test_a_single_request_fails_whichever_it_is(
    fault: str, server: Server, tmp_path: Path, undisturbed: list[Any], request: pytest.FixtureRequest
) -> None:
    """Each of them in the soak; here one of seven."""
    whole = request.node.get_closest_marker("soak") is not None
    for number in range(4, REQUESTS, 1 if whole else 14):
        home, url = tmp_path / str(number), f"{URL}-{number}"
        server.requests.clear()
        server.trouble = lambda one, number=number: fault if one.number == number else None  # type: ignore[misc]
        code = main(words(home, 30, url=url))
        server.trouble = lambda one: None
        if code == 3 and not home.exists():
            continue
        assert code == 0, number
        assert rows(url) == [10, 20, 30]
        assert all_whole(url)
        assert records(home) == undisturbed[:30]


def test_a_run_that_catches_up_says_so_and_what_it_copied(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is silent from the first checkpoint on, until the run waits for it at its end."""
    monkeypatch.setattr(copies, "PATIENCE_SECONDS", 20.0)
    ends: list[int] = []
    finish = copies.RunCopies.finish

    def finished(self: Any) -> Any:
        ends.append(1)
        return finish(self)

    monkeypatch.setattr(copies.RunCopies, "finish", finished)
    server.trouble = lambda request: "silent" if "/checkpoints/" in request.key and not ends else None
    assert main(words(tmp_path / "run", 60)) == 0
    out = capsys.readouterr().out
    said = "training continues, and checkpoints are copied later"
    assert said in out
    assert out.count("the store answers again, and has every checkpoint that is kept") == 1
    assert out.index(said) < out.index("copied step 60") < out.index("the store answers again")
    assert rows() == [40, 50, 60]
    assert all_whole()
