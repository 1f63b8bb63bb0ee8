"""A store that refuses by what was signed, as S3 does: another region, a clock that is off; the advice works."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from parity.cli import main
from parity.storage.stores import open_store
from tests.remote.server import Refusal, Server
from tests.remote.test_runs import URL, all_whole, quickly, rows, words

__all__ = ["quickly"]

THERE = "eu-west-3"
ECHO = "<AWSAccessKeyId>AKIASECRETNAME</AWSAccessKeyId><StringToSign>the-secret-itself</StringToSign>"


def by_region(headers: Mapping[str, str]) -> Refusal | None:
    """Refuse what was signed for another region than that of the bucket, and name this."""
    found = re.search(r"Credential=[^/]+/\d+/([^/]+)/s3/", headers.get("authorization") or "")
    if found is None or found[1] == THERE:
        return None
    return Refusal(400, "AuthorizationHeaderMalformed", f"<Region>{THERE}</Region>{ECHO}")


def by_clock(ahead: Callable[[], float]) -> Callable[[Mapping[str, str]], Refusal | None]:
    """Refuse what was signed a quarter of an hour before or after the time of the store."""

    def judge(headers: Mapping[str, str]) -> Refusal | None:
        now = time.time() + ahead()
        signed = calendar.timegm(time.strptime(str(headers.get("x-amz-date")), "%Y%m%dT%H%M%SZ"))
        if abs(now - signed) <= 900:
            return None
        told = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
        limit = "<MaxAllowedSkewMilliseconds>900000</MaxAllowedSkewMilliseconds>"
        return Refusal(403, "RequestTimeTooSkewed", f"<ServerTime>{told}</ServerTime>{limit}{ECHO}")

    return judge


def refused(capsys: pytest.CaptureFixture[str], *given: list[str]) -> list[str]:
    lines = []
    for one in given:
        assert main(one) == 2, one
        told = capsys.readouterr()
        assert told.err.count("\n") == 1, told.err
        assert not re.search("AKIASECRETNAME|the-secret-itself", told.out + told.err)
        lines.append(told.err)
    return lines


def test_another_region_is_named_and_setting_it_is_all_that_is_needed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.judge = by_region
    given = [["verify", URL], ["remote", "probe", URL], ["inspect", URL], words(tmp_path / "one", 10)]
    for line in refused(capsys, *given):
        found = re.search(r"the region is another one: the bucket is in ([a-z0-9-]+); set (AWS_REGION)", line)
        assert found is not None, line
        assert not (tmp_path / "one").exists(), "nothing is trained"
    monkeypatch.setenv(found[2], found[1])
    assert main(words(tmp_path / "one", 10)) == 0
    assert rows() == [10]
    assert all_whole()


@pytest.mark.parametrize("ahead", [1200.0, -90_000.0])
def test_a_clock_that_is_off_is_said_with_how_much(
    ahead: float, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.judge = by_clock(lambda: ahead)
    given = [["verify", URL], ["remote", "probe", URL], words(tmp_path / "one", 10)]
    for line in refused(capsys, *given):
        found = re.search(r"the clock of this machine differs from the store's by ([\d,]+) s; set it \(NTP\)", line)
        assert found is not None, line
        assert abs(float(found[1].replace(",", "")) - abs(ahead)) < 30


def test_a_clock_that_goes_off_while_a_run_trains_stops_no_training_and_is_said(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ahead() -> float:
        return 0.0 if not any("/checkpoints/10/" in request.key for request in server.requests) else 5000.0

    server.judge = by_clock(ahead)
    assert main(words(tmp_path / "one", 20, "--on-error", "continue")) == 3
    out = capsys.readouterr().out
    assert "differs from the store's by" in out
    assert "training continues, and checkpoints are copied later" in out
    server.judge = lambda headers: None
    assert main(words(tmp_path / "one", 30)) == 0
    assert rows() == [10, 20, 30]
    assert all_whole()


def test_what_a_store_says_of_its_time_is_taken_for_a_time_alone(server: Server) -> None:
    for told in ("soon", "2026-99-99T00:00:00Z", "<x/>", ""):
        server.refusal = Refusal(403, "RequestTimeTooSkewed", f"<ServerTime>{told}</ServerTime>")
        with pytest.raises(Exception, match=r"differs from the store's by too much; set it \(NTP\)$"):
            open_store(URL).look_around()
