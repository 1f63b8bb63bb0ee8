"""The model of a crash: what may be lost is lost in some crash, and what was synced is lost in none."""

import itertools

import pytest

from tests.crash.disk import Stage, put, tree_on_disk
from tests.crash.operations import Cut, Entry, Mark, Operation, Operations, Sync, Write
from tests.crash.states import SECTOR, Crash, Prefix, crashes, versions

pytestmark = pytest.mark.breaks_first

ROOT, FOLDER, FILE, OTHER = 0, 1, 2, 3
DATA = b"new " * 3


def after(*done: Operation, start: int = 0) -> list[dict[str, bytes | None]]:
    """Return every tree that a crash may leave after all of some operations."""
    prefix = Prefix(Operations(done, frozenset((ROOT, FOLDER))), start, len(done), seed=0)
    found = {crash.digests()[0]: crash.tree for crash in itertools.islice(prefix.crashes(), 1_000)}
    return list(found.values())


def create(name: str = "a", node: int = FILE, folder: int = ROOT) -> Entry:
    return Entry(folder, ((name, node),), f"create {name}")


def rename(source: str, target: str, node: int = FILE) -> Entry:
    return Entry(ROOT, ((source, None), (target, node)), f"rename {source} to {target}")


def write(data: bytes = DATA, start: int = 0, node: int = FILE) -> Write:
    return Write(node, start, data, "write")


def sync(node: int, covers: int) -> Sync:
    return Sync(node, covers, "sync")


def contents(trees, name: str = "a") -> set[bytes | None]:
    return {tree.get(name) for tree in trees}


def test_without_a_sync_name_and_bytes_are_lost_apart():
    trees = after(create(), write())

    assert {} in trees
    assert {"a": DATA} in trees
    assert {"a": b""} in trees
    assert {"a": bytes(len(DATA))} in trees
    assert {"a": b"\xa5" * len(DATA)} in trees


def test_a_synced_file_may_lack_its_name_but_never_its_bytes():
    assert contents(after(create(), write(), sync(FILE, 2))) == {None, DATA}


def test_a_synced_folder_does_not_make_the_bytes_of_its_files_durable():
    assert {b"", DATA, bytes(len(DATA))} <= contents(after(create(), write(), sync(ROOT, 2)))


def test_when_both_are_synced_nothing_is_lost():
    assert after(create(), write(), sync(FILE, 2), sync(ROOT, 2)) == [{"a": DATA}]


def test_a_sync_that_began_before_a_write_ended_does_not_cover_it():
    assert b"" in contents(after(create(), write(), sync(FILE, 1), sync(ROOT, 2)))


def test_a_rename_within_a_folder_is_whole_or_absent():
    trees = after(create("draft"), write(), sync(FILE, 2), sync(ROOT, 3), rename("draft", "a"))

    assert sorted(sorted(tree) for tree in trees) == [["a"], ["draft"]]


def test_a_rename_may_be_durable_before_the_bytes():
    """The mistake that a thousand programs made: write, rename, no sync."""
    old = (create(node=OTHER), write(b"old", node=OTHER), sync(OTHER, 2), sync(ROOT, 2))

    trees = after(*old, create("draft"), write(), rename("draft", "a"))

    assert {b"old", DATA, b""} <= contents(trees)


def test_write_sync_rename_leaves_the_old_or_the_new():
    old = (create(node=OTHER), write(b"old", node=OTHER), sync(OTHER, 2), sync(ROOT, 2))

    assert contents(after(*old, create("draft"), write(), sync(FILE, 6), rename("draft", "a"))) == {b"old", DATA}


def test_later_names_may_outlive_earlier_ones():
    names = [tuple(sorted(tree)) for tree in after(create("a"), create("b", OTHER), start=0)]

    assert sorted(set(names)) == [(), ("a",), ("a", "b"), ("b",)]


def test_what_is_in_a_folder_is_lost_with_its_name():
    done = (
        Entry(ROOT, (("folder", FOLDER),), "mkdir"),
        create(folder=FOLDER),
        write(),
        sync(FILE, 3),
        sync(FOLDER, 3),
    )

    assert sorted(after(*done), key=len) == [{}, {"folder": None, "folder/a": DATA}]


def test_what_was_done_before_the_start_is_durable():
    assert contents(after(create(), write(b"old"), Mark(1), write(b"new", 3), start=3)) == {
        b"old",
        b"oldnew",
        b"old\0\0\0",
        b"old\xa5\xa5\xa5",
        b"oldn",
    }


def test_a_file_is_torn_at_every_sector():
    whole = bytes(range(1, 4)) * SECTOR
    found = dict(versions(b"", [Write(FILE, 0, whole, "")]))

    assert found["whole"] == whole
    assert found["none of it"] == b""
    assert found["zeros"] == bytes(len(whole))
    for sector in range(3):
        at = sector * SECTOR
        assert found[f"cut at {at}"] == whole[:at]
        assert found[f"zeros from {at}"] == whole[:at].ljust(len(whole), b"\0")
        assert found[f"a hole at {at}"] == whole[:at] + bytes(SECTOR) + whole[at + SECTOR :]
        assert found[f"nothing but {at}"].strip(b"\0") == whole[at : at + SECTOR]


def test_durable_bytes_survive_every_version():
    durable = b"d" * (SECTOR + 10)

    for _, content in versions(durable, [Write(FILE, len(durable), b"e" * 2 * SECTOR, "")]):
        assert content.startswith(durable)


def test_any_one_write_may_be_missing_and_any_may_be_the_last():
    found = {content for _, content in versions(b"", [write(b"ab"), write(b"cd", 2), Cut(FILE, 3, "")])}

    assert {b"ab", b"abcd", b"abc", b"\0\0c"} <= found


def test_crashes_are_distinct_and_the_same_every_time():
    done = (create(), *(write(bytes([n]) * 700, 700 * n) for n in range(1, 9)))
    operations = Operations(done, frozenset((ROOT,)))

    first, second = ([c.digests() for c in crashes(operations, 0, len(done), most=500)] for _ in range(2))

    assert first == second
    assert len({whole for whole, _ in first}) == len(first) == 500


def test_every_prefix_has_its_turn():
    done = tuple(
        itertools.chain.from_iterable((create(str(n), 10 + n), write(b"x" * 2000, node=10 + n)) for n in range(9))
    )

    found = list(crashes(Operations(done, frozenset((ROOT,))), 0, len(done), most=60))

    assert {crash.after for crash in found} == set(range(len(done) + 1))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": b""}, {"a": None}),
        ({"a": b"b"}, {"ab": b""}),
        ({"a": b"", "b": b""}, {"a": b""}),
        ({"a": b"x", "b": b""}, {"a": b"", "b": b"x"}),
    ],
)
def test_different_trees_have_different_digests(one, other):
    for digest, different in zip(Crash(0, "", one).digests(), Crash(0, "", other).digests(), strict=True):
        assert digest != different
    assert Crash(0, "", one).digests() == Crash(1, "else", dict(reversed(one.items()))).digests()


def test_digests_without_the_records_differ_only_by_the_rest():
    crash, other = (Crash(0, "", {"steps.jsonl": data, "a": b"1"}).digests() for data in (b"1", b"2"))

    assert crash[0] != other[0]
    assert crash[1] == other[1]


def test_a_stage_shows_exactly_one_tree_after_the_other():
    trees = [
        {"a": b"1", "b": None, "b/c": b"2", "b/d": None},
        {"a": None, "a/x": b"1", "b": b"2"},
        {},
        {"b": None, "b/c": b"3"},
    ]

    with Stage() as stage:
        for before, tree in itertools.permutations(trees, 2):
            stage.show(before)
            assert tree_on_disk(stage.show(tree)) == tree
    assert not stage.path.exists()


def test_a_tree_that_is_put_is_read_back(tmp_path):
    tree = {"b": None, "b/c": b"2", "a": b"", "b/d": None}

    assert tree_on_disk(put(tree, tmp_path / "deep" / "root")) == tree
