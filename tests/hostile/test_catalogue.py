"""Every hostile or broken file is refused by name or proved harmless; none runs code, hangs, or eats memory.

The rule: what is refused raises a ParityError whose message names the file or the leaf and the reason, and leaves the
trainer as it was, to the last bit; what is accepted gives the state of the good run, to the last bit.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.hostile.catalogue import ENTRIES
from tests.support.sharing import made_once

MEMORY = 256 << 20
"""Bytes a refusal may take at its peak; the largest document that is read has 64 MiB."""

LONGEST = 8_000
"""Characters of a message, however much was wrong."""

RESTARTS = 20


@pytest.fixture(scope="session")
def results(good, memory, tmp_path_factory):
    """Return a function from a side's name to what became of its entries; asked once, by one test process."""
    known = {}

    def get(side):
        if side not in known:
            home = made_once(
                tmp_path_factory, f"hostile-{side}", lambda home: run_worker(side, good(side), memory, home / "met")
            )
            lines = [json.loads(line) for line in (home / "met").read_text().splitlines()]
            known[side] = {line["id"]: line for line in lines}
        return known[side]

    return get


def run_worker(side, run, memory, out):
    """Let a process meet the entries; when one ends it, a new one continues after that.

    It compiles without a cache on disk: it reports whatever it writes beside the run.
    """
    root = Path(__file__).resolve().parents[2]
    for _ in range(RESTARTS):
        scratch = memory / f"met-{side}"
        scratch.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "tests.hostile.worker", side, str(run), str(scratch), str(out)]
        env = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
        done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        last = json.loads(out.read_text().splitlines()[-1]) if out.exists() else {"met": True}
        assert not last["met"], f"the worker failed outside of any entry:\n{done.stderr[-3000:]}"
        ended = {"id": last["id"], "met": False, "ended": done.returncode, "stderr": done.stderr[-2000:]}
        with out.open("a") as file:
            print(json.dumps(ended), file=file)
    raise AssertionError(f"{RESTARTS} entries ended the process")


def complaints(entry, result):
    """Return what is wrong with what became of an entry."""
    if not result["met"]:
        return [f"ended the process: {result.get('ended')}\n{result.get('stderr')}"]
    found = []
    expect = {
        "a canary was touched": not result["canary"],
        f"did what no restore does: {result['events']}": not result["events"],
        f"grew by {result['grown'] >> 20} MiB": result["grown"] < MEMORY,
    }
    error = result.get("error")
    if entry.outcome == "run" and error is None:
        expect[f"started from another state: {result['differs'][:5]}"] = not result["differs"]
    elif entry.outcome == "harmless":
        expect[f"was refused: {error}: {result.get('message')}"] = error is None
        expect[f"gave another state: {result['differs'][:5]}"] = not result["differs"]
    else:
        expect[f"was accepted, and {result['differs'][:5]} differ"] = error is not None
    if error is not None and entry.outcome != "harmless":
        memory = [
            link for link in result["chain"] if re.search("MemoryError|bad_alloc|t allocate|reserved space", link)
        ]
        expect |= {
            f"raised {result['chain']}": result["ours"],
            f"names nothing like {entry.names!r}: {result['message']}": re.search(entry.names, result["message"]),
            f"says {result['length']} characters": result["length"] < LONGEST,
            "cannot be printed": result["printable"],
            f"asked for memory it did not get: {memory}": not memory,
            f"changed {result.get('changed', [])[:5]}": not result.get("changed"),
        }
        if entry.outcome in ("damaged", "seal"):
            expect["verify found nothing"] = not result["whole"]
        if entry.outcome == "damaged":
            named = re.search(entry.names, str(result["faults"]))
            expect[f"verify names {result['faults']}"] = named
        if entry.outcome in ("refused", "valid"):
            expect[f"was not sealed well: {result['faults']}"] = result["whole"] and not result["damaged"]
        if entry.outcome == "foreign":
            expect["has a seal"] = result["foreign"]
    found += [complaint for complaint, fine in expect.items() if not fine]
    return found


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_refused_by_name_or_proved_harmless(entry, results):
    found = results(entry.side)
    assert entry.id in found, "was not met"
    assert complaints(entry, found[entry.id]) == []


def test_every_entry_has_a_name_of_its_own():
    assert [name for name, count in Counter(entry.id for entry in ENTRIES).items() if count > 1] == []


def test_the_catalogue_is_long_and_few_of_it_is_harmless():
    refused = [entry for entry in ENTRIES if entry.outcome != "harmless"]
    assert len(refused) >= 400
    assert len(ENTRIES) - len(refused) < len(refused) / 8
