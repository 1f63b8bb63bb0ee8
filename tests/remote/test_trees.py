"""`save`, `restore` and managers of trees at a store: whole or absent there too, by one that saves, verified."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.checkpoints.remote import Lease, head_text, parse_head, read_head
from parity.cli import main
from parity.errors import CheckpointError, DamagedError, LockedError, ParityError, RunDirectoryError, SaveError
from parity.policy import Rules
from parity.storage.stores import Probed, ProbeRow, asked, open_store, parse_url, require_safe
from tests.remote.server import Server, every
from tests.remote.test_runs import quickly, words
from tests.support.sealed import flip
from tests.support.tree_states import array, side_of

__all__ = ["quickly"]

URL = "s3://bucket/trees/a"
each_side = pytest.mark.parametrize("side", ["jax", "torch"])
KEEP = Rules(mode="max", keep_latest=2)
ROOT = Path(__file__).resolve().parents[2]
NOTICED = r"not what was sealed|not hold the bytes|was changed|cannot be read"


def tree(side: str, step: int = 7) -> dict[str, Any]:
    return {"w": array(side, np.full(5, step, np.float32)), "step": step}


def same(found: Any, step: int = 7) -> bool:
    return found["step"] == step and np.array_equal(np.asarray(found["w"]), np.full(5, step, np.float32))


def elsewhere(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Be another machine: nothing of this one is there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "another machine"))


def files(root: Path) -> list[Path]:
    return [one for one in root.rglob("*") if one.is_file() and "checkpoints" in one.parts]


@pytest.mark.parametrize(("side", "scheme"), [("jax", "s3"), ("torch", "s3"), ("torch", "gs")])
def test_a_tree_goes_to_a_store_and_comes_back(
    side: str, scheme: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, module = URL.replace("s3", scheme), side_of(side)
    module.save(url, tree(side))
    elsewhere(monkeypatch, tmp_path)
    assert same(module.restore(url).tree)
    assert same(module.restore(url, like=tree(side, 0)).tree)
    with pytest.raises(CheckpointError, match="exists already; it is not overwritten"):
        module.save(url, tree(side, 8))
    assert same(module.restore(url).tree)
    assert files(tmp_path) == [], "nothing is left here"


def test_whichever_request_of_a_save_fails_the_tree_is_whole_or_absent(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_side = side_of("torch")
    torch_side.save(f"{URL}/count", tree("torch"))
    count = len(server.requests)
    assert count > 8
    failed: list[str] = []
    for number in range(1, count + 1, 2):
        url = f"{URL}/{number}"
        server.requests.clear()
        server.trouble = every(number, "503", from_then_on=True)
        try:
            torch_side.save(url, tree("torch"))
        except ParityError as error:
            failed.append(str(error))
        server.trouble = lambda request: None
        head = read_head(open_store(url))
        if head is not None and head.checkpoints:
            assert same(torch_side.restore(url).tree)
            continue
        with pytest.raises(CheckpointError, match=r"nothing is there|no latest checkpoint"):
            torch_side.restore(url)
        torch_side.save(url, tree("torch"))
        assert same(torch_side.restore(url).tree)
    assert len(failed) > 4
    assert not [line for line in failed if "\n" in line]


@each_side
def test_a_manager_saves_to_a_store_keeps_by_the_policy_and_restores_elsewhere(
    side: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = side_of(side)
    with module.CheckpointManager(URL, keep=KEEP, save_interval_steps=10) as manager:
        for step, metric in ((10, 0.5), (15, 1.0), (20, 0.9), (30, 0.1), (40, float("nan"))):
            assert manager.save(step, {"state": tree(side, step)}, metric) is (step != 15)
        with pytest.raises(CheckpointError, match="has step 40 already"):
            manager.save(40, {"state": tree(side, 40)})
        assert (manager.all_steps(), manager.latest_step(), manager.best_step()) == ([20, 30, 40], 40, 20)
        asked = len(server.requests)
        assert not manager.should_save(41)
        assert len(server.requests) == asked, "a store is not asked at every step"
    elsewhere(monkeypatch, tmp_path)
    other = module.CheckpointManager(URL, keep=KEEP)
    assert (other.all_steps(), other.latest_step(), other.best_step()) == ([20, 30, 40], 40, 20)
    for which, step in (("latest", 40), ("best", 20), (30, 30)):
        found = other.restore(which, like={"state": tree(side, 0)})
        assert found.step == step
        assert same(found.tree["state"], step)
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 10 in .* \(steps: 20, 30, 40\)"):
        other.restore(10)
    with other:
        assert other.save(50, {"state": tree(side, 50)}, 0.2)
    folders = {"/".join(key.split("/")[2:5]) for key in server.objects if "checkpoints" in key}
    assert folders == {"checkpoints/20/1", "checkpoints/40/1", "checkpoints/50/2"}, "the rest is gone"
    assert same(module.restore(f"{URL}/checkpoints/20").tree["state"], 20)
    assert files(tmp_path) == []


def test_one_manager_saves_at_a_time_and_one_follows_a_killed_one_here_at_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = side_of("torch")
    first = module.CheckpointManager(URL)
    first.save(1, {"a": tree("torch", 1)})
    first.wait()
    with pytest.raises(LockedError, match="has a writer already"):
        module.CheckpointManager(URL).save(2, {"a": tree("torch", 2)})
    with monkeypatch.context() as patch:
        elsewhere(patch, tmp_path)
        with pytest.raises(LockedError, match=r"s3://.* has a writer already: process .* renewed its lease"):
            module.CheckpointManager(URL).save(2, {"a": tree("torch", 2)})
    with monkeypatch.context() as patch:
        patch.setattr(Lease, "close", Lease.stop)  # as if killed
        first.close()
    with module.CheckpointManager(URL) as second:
        assert second.save(2, {"a": tree("torch", 2)})
    assert second.all_steps() == [1, 2]


def test_a_save_that_the_store_refuses_is_an_error_of_the_next_call_and_can_be_repeated(server: Server) -> None:
    module = side_of("torch")
    with module.CheckpointManager(URL) as manager:
        manager.save(1, {"a": tree("torch", 1)})
        manager.wait()
        server.trouble = lambda request: "503" if request.method == "PUT" else None
        manager.save(2, {"a": tree("torch", 2)})
        with pytest.raises(SaveError, match=r"step 2 could not be saved: s3://.* the store could not write it now"):
            manager.wait()
        server.trouble = lambda request: None
        assert manager.all_steps() == [1]
        manager.save(2, {"a": tree("torch", 2)})
    assert same(manager.restore().tree["a"], 2)


def test_what_the_store_refused_is_sent_with_the_next_save_and_said(server: Server) -> None:
    module = side_of("torch")
    with module.CheckpointManager(URL) as manager:
        server.trouble = lambda request: "503" if request.method == "PUT" and "/checkpoints/" in request.key else None
        assert manager.save(1, {"a": tree("torch", 1)})
        with pytest.warns(RuntimeWarning, match=r"could not write it now.* step 1 is kept in .* sent with the next"):
            assert manager.save(2, {"a": tree("torch", 2)})
        assert manager.save(3, {"a": tree("torch", 3)}), "said once while the store is gone"
        with pytest.raises(SaveError, match=r"step 3 could not be saved: .*; step 1, 2, 3 is kept in"):
            manager.wait()
        with pytest.raises(SaveError, match="step 3 could not be saved"):
            manager.restore()
        assert manager.all_steps() == []
        server.trouble = lambda request: None
        assert manager.save(4, {"a": tree("torch", 4)})
        manager.wait()
        assert manager.all_steps() == [2, 3, 4], "the rules keep three"
        assert files(manager.directory / "checkpoints") == []
        server.trouble = lambda request: "503" if request.method == "PUT" and "/checkpoints/" in request.key else None
        assert manager.save(5, {"a": tree("torch", 5)})
        with pytest.warns(RuntimeWarning, match="step 5 is kept in"):
            assert manager.save(6, {"a": tree("torch", 6)})
        manager._checkpoints.due()
        server.trouble = lambda request: None
        manager.wait()
        assert manager.all_steps() == [4, 5, 6], "waiting tries once more"
    for step in (4, 5, 6):
        assert same(manager.restore(step).tree["a"], step)


def test_a_store_that_is_gone_to_the_end_is_an_error_of_close_and_what_it_lacks_is_said(server: Server) -> None:
    module = side_of("torch")
    manager = module.CheckpointManager(URL)
    manager.save(1, {"a": tree("torch", 1)})
    manager.wait()
    server.trouble = lambda request: "503" if "/checkpoints/2/" in request.key else None
    manager.save(2, {"a": tree("torch", 2)})
    with pytest.raises(SaveError, match="step 2 is kept in") as caught:
        manager.close()
    manager.close()
    server.trouble = lambda request: None
    assert manager.all_steps() == [1]
    where = str(caught.value).partition("kept in ")[2].split()[0]
    assert same(module.restore(f"{where}/2").tree["a"], 2), "it can be had from there"
    with module.CheckpointManager(URL) as second, pytest.warns(RuntimeWarning, match="step 2 was saved by a process"):
        second.save(2, {"a": tree("torch", 7)})
    assert same(second.restore().tree["a"], 7)


def test_what_can_never_be_sent_is_raised_and_not_kept(server: Server) -> None:
    module = side_of("torch")
    with module.CheckpointManager(URL) as manager:
        server.trouble = lambda request: "503" if "/checkpoints/1/" in request.key else None
        manager.save(1, {"a": tree("torch", 1)})
        manager._checkpoints.due()
        flip(manager.directory / "checkpoints" / "1" / "a.pt", 400)
        server.trouble = lambda request: None
        with pytest.raises(SaveError, match=r"step 1 could not be saved: .*is not what was sealed"):
            manager.wait()
        assert manager.save(2, {"a": tree("torch", 2)})
    assert manager.all_steps() == [2]


def test_a_manager_whose_lease_was_taken_adds_nothing_and_names_the_owner(server: Server) -> None:
    module = side_of("torch")
    manager = module.CheckpointManager(URL)
    manager.save(1, {"a": tree("torch", 1)})
    manager.wait()
    key = next(key for key in server.objects if key.endswith("parity-run.json"))
    head = parse_head(server.objects[key], parse_url(URL))
    owner = type(head.owner)(host="elsewhere", pid=7, since="now", command="parity", token="other")  # type: ignore[misc]
    taken = type(head)(**{**vars(head), "epoch": head.epoch + 1, "owner": owner})
    server.memory.write("bucket", key, head_text(taken).encode())
    manager.save(2, {"a": tree("torch", 2)})
    with pytest.raises(SaveError, match=r"lost the lease \(epoch 1\).* to process 7 on elsewhere"):
        manager.close()
    assert manager.all_steps() == [1]


@pytest.mark.parametrize("what", ["tree", "manager"])
def test_a_flipped_byte_in_any_object_is_noticed(
    what: str, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    module = side_of("torch")
    if what == "tree":
        module.save(URL, tree("torch"))
    else:
        with module.CheckpointManager(URL, keep=KEEP) as manager:
            manager.save(7, {"a": tree("torch")}, 1.0)
    assert main(["verify", URL]) == 0
    keys = list(server.objects)
    assert len(keys) >= 4
    for key in keys:
        data = bytearray(server.objects[key])
        data[len(data) // 2] ^= 1
        server.memory.write("bucket", key, bytes(data))
        assert main(["verify", URL]) in (1, 2), key
        with pytest.raises(
            CheckpointError, match=r"not what was sealed|not hold the bytes|was changed|cannot be read"
        ):
            module.restore(URL) if what == "tree" else module.CheckpointManager(URL).restore()
        data[len(data) // 2] ^= 1
        server.memory.write("bucket", key, bytes(data))
    assert main(["verify", URL]) == 0
    capsys.readouterr()


def test_a_damaged_newest_is_an_error_and_a_step_before_is_taken_by_its_name(server: Server) -> None:
    module = side_of("torch")
    with module.CheckpointManager(URL) as manager:
        for step in (1, 2):
            manager.save(step, {"a": tree("torch", step)})
    key = next(key for key in server.objects if key.endswith("2/1/files/a.pt"))
    server.memory.write("bucket", key, server.objects[key][:-1])
    with pytest.raises(DamagedError, match=r"checkpoints/2/1 is not what was sealed"):
        manager.restore()
    assert same(manager.restore(1).tree["a"], 1)


def test_the_commands_take_trees_and_managers_at_a_store(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = side_of("torch")
    module.save(f"{URL}/one", tree("torch"))
    with module.CheckpointManager(f"{URL}/many", keep=KEEP) as manager:
        for step, metric in ((10, 0.9), (20, 0.1)):
            manager.save(step, {"a": tree("torch", step)}, metric)
    one, many = f"{URL}/one", f"{URL}/many"
    for given, code, said in (
        (["verify", one], 0, f"whole      {one}/checkpoints/0"),
        (["verify", many], 0, f"whole      {many}/checkpoints/20"),
        (["path", many, "best"], 0, f"{many}/checkpoints/10\n"),
        (["path", many, "latest"], 0, f"{many}/checkpoints/20\n"),
        (["inspect", one, "--json"], 0, f'"path": "{one}"'),
        (["inspect", many], 0, f"{many}: torch.save"),
        (["compare", one, one], 0, "every leaf is equal"),
        (["compare", f"{many}/checkpoints/10", f"{many}/checkpoints/20"], 1, "a.w"),
        (["compare", many, many], 2, f"{many} is neither a run"),
        (["export", many, "best", str(tmp_path / "best")], 0, f"step 10 of {many}, verified"),
        (["export", one, "latest", str(tmp_path / "one")], 2, f"{one}/checkpoints/0 holds no run"),
        (["export", one, "best", str(tmp_path / "one")], 2, f"no best checkpoint in {one}"),
        (["convert", one, str(tmp_path / "c.safetensors"), "--to", "safetensors"], 0, "copied"),
        (["convert", f"{many}/checkpoints/10", str(tmp_path / "d.safetensors"), "--to", "safetensors"], 0, "copied"),
        (["seal", many], 2, "whose checkpoints have seals"),
    ):
        assert main(given) == code, given
        told = capsys.readouterr()
        assert said in told.out + told.err, (given, told)
        assert "/tmp" not in told.out + told.err or code == 0
    assert main(["verify", str(tmp_path / "best"), "--against", str(tmp_path / "best")]) == 0


def test_what_is_kept_at_a_place_is_never_mixed(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = side_of("torch")
    assert main(words(tmp_path / "run", 10, url=f"{URL}/run")) == 0
    module.save(f"{URL}/one", tree("torch"))
    open_store(f"{URL}/data").put("rows.csv", b"1,2")
    before = server.objects
    for place in ("run", "one"):
        with pytest.raises(CheckpointError, match=r"holds a run, or what was saved in another way"):
            module.CheckpointManager(f"{URL}/{place}").save(1, {"a": tree("torch")})
    with pytest.raises(CheckpointError, match="holds a run"):
        module.save(f"{URL}/run", tree("torch"))
    for act in (
        lambda: module.save(f"{URL}/data", tree("torch")),
        lambda: module.CheckpointManager(f"{URL}/data").save(1, {"a": tree("torch")}),
    ):
        with pytest.raises(
            RunDirectoryError, match=r"holds rows\.csv, and no parity-run\.json: something else is kept"
        ):
            act()
    capsys.readouterr()
    for place, said in (
        ("one", "holds what `save` or a manager saved, and no run"),
        ("data", "something else is kept there"),
    ):
        assert main(words(tmp_path / "new", 10, url=f"{URL}/{place}")) == 2, place
        assert said in (err := capsys.readouterr().err), err
        assert err.count("\n") == 1
    heads = {key for key in before if key.endswith("parity-run.json")}  # a lease was taken and given back
    assert {k: v for k, v in server.objects.items() if k not in heads} == {
        k: v for k, v in before.items() if k not in heads
    }


def test_a_save_costs_the_requests_that_the_page_says(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a bucket that was probed."""
    module, counts = side_of("torch"), []
    kept = Probed(tuple(ProbeRow(name, promise) for name, promise, _ in asked.TRIED))
    monkeypatch.setattr(asked, "probe", lambda store: kept)
    monkeypatch.setattr("parity.checkpoints.remote.opening.require_safe", require_safe)
    module.save(f"{URL}/first", tree("torch"))
    server.requests.clear()
    module.save(f"{URL}/one", tree("torch"))
    counts.append(len(server.requests))
    with module.CheckpointManager(f"{URL}/many", keep=Rules(keep_latest=2, mode="min")) as manager:
        for step in (1, 2, 3):
            server.requests.clear()
            manager.save(step, {"a": tree("torch", step)})
            manager.wait()
            counts += [len(server.requests)] if step > 1 else []
    page = (ROOT / "docs" / "remote.md").read_text()
    said = "new prefix: {} requests; a save of a manager with one item: {}, with a removal {}."
    assert said.format(*counts) in page


def kill_savers(server: Server, times: int) -> None:
    """Kill processes that save one tree after another; each begins with the place at which the one before ended."""
    draw, first, seen = random.Random(5), 0, 0
    torch_side = side_of("torch")
    for _ in range(times):
        command = [sys.executable, "-m", "tests.remote.tree_saver", URL, str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as one:
            assert one.stdout is not None
            one.stdout.readline()
            time.sleep(draw.uniform(0, 0.3))
            one.kill()
            told = [first, *map(int, one.stdout.read().split())]
        for number in told:
            assert torch_side.restore(f"{URL}/{number}").tree["step"] == number
        first = told[-1] + 1
        head = read_head(open_store(f"{URL}/{first}"))
        if head is None or not head.checkpoints:
            seen += 1
            with pytest.raises(CheckpointError, match=r"nothing is there|no latest|there is no checkpoint"):
                torch_side.restore(f"{URL}/{first}")
        else:
            first += 1
    assert seen, "none was killed between two trees"


@pytest.mark.processes
@pytest.mark.soak
def test_killed_savers_leave_each_tree_whole_or_absent(server: Server) -> None:
    """The next one on this machine saves to the place at once, whatever the killed one left there."""
    kill_savers(server, 30)


def test_other_urls_and_bad_names_are_one_line(server: Server) -> None:
    module = side_of("torch")
    for act in (lambda: module.save("https://host/x", {}), lambda: module.CheckpointManager("https://host/x")):
        with pytest.raises(RunDirectoryError, match=r"^[^\n]*$"):
            act()
    with pytest.raises(ParityError, match="there is no bucket 'elsewhere'; create it"):
        module.save("s3://elsewhere/x", tree("torch"))
    with pytest.raises(ParityError, match="there is no bucket 'elsewhere'; create it"):
        module.CheckpointManager("s3://elsewhere/x").save(1, {"a": tree("torch")})
    assert json.dumps(sorted(server.objects)) == "[]"
