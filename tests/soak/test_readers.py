"""Readers beside a writer that never rests restore the latest and the best; a step may have been removed."""

import re

import pytest

from tests.soak import readers_beside_a_writer

FAILED = re.compile(r"(\d+) times .*")
REMOVED = re.compile(r"\d+ times CheckpointError of #: .*(while it was read: |no whole checkpoint of step #)")


@pytest.mark.soak
@pytest.mark.parametrize("side", ["jax", "torch"])
def test_nothing_reads_like_damage(side: str, capsys: pytest.CaptureFixture[str]) -> None:
    readers_beside_a_writer.main(20.0, side)
    out = capsys.readouterr().out
    assert "ended with" not in out
    assert sum(map(int, re.findall(r"^read: (\d+)", out, re.MULTILINE))) > 100
    assert [one[0] for one in FAILED.finditer(out) if not REMOVED.match(one[0])] == []
