"""The survey of crashes can fail: a save that forgets one sync, or one order, is found out on either side.

Each fault is planted into the record of the real save, so that everything else about it stays real.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.crash.operations import Entry, Operations, Sync, Write
from tests.crash.record import record
from tests.crash.survey import SECOND, survey
from tests.crash.workload import NEW, OLD, READY, REPLACED

pytestmark = pytest.mark.processes

ENOUGH = 1_000
Plant = Callable[[Operations], list[int]]
"""Returns the indices of the operations that are done, in the order in which they are."""


def edited(operations: Operations, order: list[int]) -> Operations:
    """Return operations left out or in another order; each sync covers what is then before it."""
    done = []
    for index in order:
        operation = operations.done[index]
        done.append(replace(operation, covers=len(done)) if isinstance(operation, Sync) else operation)
    return Operations(tuple(done), operations.folders)


def commit(operations: Operations) -> int:
    """Return the index of the rename that gives the new checkpoint its name."""
    return found(operations, rf"rename \S+ to checkpoints/{NEW}")


def found(operations: Operations, what: str, start: int = 0) -> int:
    """Return the index of the first operation of the second save that is described so."""
    span = range(max(start, operations.mark(READY)), len(operations.done))
    return next(index for index in span if re.fullmatch(what, operations.done[index].what))


def without_syncs(operations: Operations, node: int) -> list[int]:
    start = operations.mark(READY)
    kept = [
        index
        for index, operation in enumerate(operations.done)
        if index < start or not isinstance(operation, Sync) or operation.node != node
    ]
    assert len(kept) < len(operations.done)
    return kept


def written_most(operations: Operations) -> int:
    sizes: Counter[int] = Counter()
    for operation in operations.done[operations.mark(READY) : commit(operations)]:
        if isinstance(operation, Write) and re.search(r"of checkpoints/(?!.*seal\.json)", operation.what):
            sizes[operation.node] += len(operation.data)
    return sizes.most_common(1)[0][0]


def data_is_not_synced(operations):
    return without_syncs(operations, written_most(operations))


def seal_is_not_synced(operations):
    return without_syncs(operations, operations.done[found(operations, r"write .* of \S+/seal\.json")].node)


def folder_is_not_synced_before_the_rename(operations):
    entry = operations.done[commit(operations)]
    assert isinstance(entry, Entry)
    return without_syncs(operations, next(node for _, node in entry.names if node is not None))


def folder_is_not_synced_after_the_rename(operations):
    index = found(operations, "sync checkpoints", start=commit(operations))
    return [i for i in range(len(operations.done)) if i != index]


def renamed_before_it_is_sealed(operations):
    rename, seal = commit(operations), found(operations, r"create \S+/seal\.json")
    rest = [i for i in range(len(operations.done)) if i != rename]
    return [*rest[:seal], rename, *rest[seal:]]


def old_one_goes_before_the_new_one_comes(operations):
    rename, end = commit(operations), operations.mark(REPLACED)
    removal = found(operations, rf"(mkdir checkpoints/\.removed\S*|rename checkpoints/{OLD} to .*)", start=rename)
    return [*range(rename), *range(removal, end), *range(rename, removal), *range(end, len(operations.done))]


def pointer_moves_before_the_checkpoint_is_there(operations):
    rename = commit(operations)
    start = found(operations, r"create \.latest\.json\.\d+", start=rename)
    stop = found(operations, r"rename \.latest\.json\.\d+ to latest\.json", start=start) + 2  # and the sync after it
    return [*range(rename), *range(start, stop), *range(rename, start), *range(stop, len(operations.done))]


def pointer_is_not_synced(operations):
    start = found(operations, r"create \.latest\.json\.\d+")
    return without_syncs(operations, operations.done[found(operations, "write .*", start=start)].node)


def records_are_not_synced(operations):
    return without_syncs(operations, operations.done[found(operations, r"write .* of steps\.jsonl")].node)


PLANTED = {
    data_is_not_synced: f"{NEW} (has a checkpoint's name and is none|counts as whole and is not)",
    seal_is_not_synced: f"{NEW} has a checkpoint's name and is none",
    folder_is_not_synced_before_the_rename: f"{NEW} has a checkpoint's name and (is none|no seal)",
    folder_is_not_synced_after_the_rename: f"a pointer names {NEW}|goes on from None|goes on from {OLD}",
    renamed_before_it_is_sealed: f"{NEW} has a checkpoint's name and no seal",
    old_one_goes_before_the_new_one_comes: "goes on from None",
    pointer_moves_before_the_checkpoint_is_there: f"a pointer names {NEW}",
    pointer_is_not_synced: r"latest\.json is no pointer",
    records_are_not_synced: r"steps\.jsonl lacks the steps",
}
"""What is done wrong to what is said first."""


@pytest.mark.parametrize("side", ["jax", "torch"])
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_save_that_does_it_wrong_is_found_out(plant: Plant, side):
    recording = record(side)
    operations = edited(recording.operations, plant(recording.operations))

    result = survey(recording, SECOND, most=ENOUGH, operations=operations, until_fault=True)

    said = [*result.faults, *result.records] if plant is records_are_not_synced else result.faults
    assert any(re.match(PLANTED[plant], fault) for fault in said), said[:3] or f"{result.judged} crashes, no fault"


@pytest.mark.parametrize("side", ["jax", "torch"])
def test_the_record_copied_without_a_change_is_not_found_out(side):
    recording = record(side)
    operations = edited(recording.operations, list(range(len(recording.operations.done))))

    result = survey(recording, SECOND, most=ENOUGH, operations=operations)

    assert (result.faults, result.records, result.judged) == ([], [], ENOUGH)


def test_a_changed_byte_of_the_new_checkpoint_is_found_out():
    recording = record("torch")
    changed = dict(recording.new)
    data = bytearray(changed[f"checkpoints/{NEW}/state.pt"])
    data[100] ^= 1
    changed[f"checkpoints/{NEW}/state.pt"] = bytes(data)

    result = survey(replace(recording, new=changed), SECOND, most=ENOUGH, until_fault=True)

    assert result.faults[0].startswith(f"{NEW}/state.pt is not what was saved")


def test_another_live_state_than_the_sealed_one_is_found_out():
    recording = record("torch")
    leaf = min(recording.leaves[OLD])
    leaves = {**recording.leaves, OLD: {**recording.leaves[OLD], leaf: "another"}}

    result = survey(replace(recording, leaves=leaves), SECOND, most=ENOUGH, until_fault=True)

    assert result.faults[0].startswith(f"the seal of {OLD} does not hold the digests of the live state")
