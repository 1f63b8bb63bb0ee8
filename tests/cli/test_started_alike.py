"""What processes of one run have to be started with: the words, the code, and the data that each of them sees."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import ModuleType

import pytest

from parity.cli.train import _facts
from parity.environment import code_digest
from parity.spec import load

WORDS = dict.fromkeys(("side", "resume", "or_next", "on_error", "trace_state", "pause_at"), "")


def facts(path: Path) -> dict[str, str]:
    spec = load("gpt-text", None, [f"data.path={path}"])
    return _facts(argparse.Namespace(**WORDS, dir=path.parent), spec, sys.modules["parity"])


def test_a_process_that_sees_other_data_under_the_same_name_is_told_from_the_first(tmp_path: Path) -> None:
    (tmp_path / "here.txt").write_text("abcdefgh " * 4000)
    (tmp_path / "there.txt").write_text("abcdefgx " + "abcdefgh " * 3999)
    first, second = facts(tmp_path / "here.txt"), facts(tmp_path / "there.txt")
    assert {name for name in first if first[name] != second[name]} == {"data"}


def test_a_changed_line_of_code_is_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "__init__.py"
    module = ModuleType("some_side")
    module.__file__ = str(source)
    monkeypatch.setitem(sys.modules, "some_side", module)
    found = []
    for text in ("rate = 0.1\n", "rate = 0.2\n", "rate = 0.1\n"):
        source.write_text(text)
        found.append(code_digest("parity", "some_side"))
    assert found[0] == found[2] != found[1]
