"""Further shapes of loops: what is shown alone, what tells a start, what is made again, rotations, indexes."""

import heapq
import json
import logging
import math
import pickle
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.live.small_loops import State, Trainer, check, descend, first, trainer, weights

log = logging.getLogger(__name__)


def shows_the_peak(state: State, number: int) -> None:
    state.own_peak = max(state.own_peak, descend(state, number))
    print(f"{number} worst {state.own_peak:.3f}")


def test_a_highest_value_that_is_only_printed_is_listed() -> None:
    found = check(trainer(weights(own_peak=0.0), shows_the_peak))
    assert found.verdict == "holds", found
    assert "state.own_peak" in {one.path for one in found.bookkeeping}


def logs_the_best(state: State, number: int) -> None:
    loss = descend(state, number)
    if loss < state.own_best:
        state.own_best = loss
        log.info("lowest of this process %.3f", loss)
    state.own_high = loss if loss > state.own_high else state.own_high
    log.debug("up to %.3f", state.own_high)


def saves_the_best(state: State, number: int) -> None:
    loss = descend(state, number)
    if loss < state.low:
        state.low = loss
        state.kept.info(loss)


class Kept:
    """What was best, under a name that loggers have too."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def info(self, value: float) -> None:
        self.values = [value]


def test_what_only_a_logger_is_told_is_listed() -> None:
    found = check(trainer(weights(own_best=math.inf, own_high=0.0), logs_the_best))
    assert found.verdict == "holds", found
    assert {one.path for one in found.bookkeeping} >= {"state.own_best", "state.own_high"}


def test_what_is_no_logger_is_no_message() -> None:
    given = weights(low=math.inf, kept=Kept())
    assert check(trainer(given, saves_the_best)).verdict == "holds"
    assert check(trainer(given, saves_the_best, ("low",))).verdict == "broken"


def stops_by_the_peak(state: State, number: int) -> None:
    state.high = max(state.high, descend(state, number))
    if state.high > 1e6:
        raise ValueError("it diverges")


def test_a_highest_value_that_a_condition_takes_is_lost() -> None:
    assert check(trainer(weights(high=0.0), stops_by_the_peak)).verdict == "holds"
    assert first(check(trainer(weights(high=0.0), stops_by_the_peak, ("high",)))) == "state.high"


class Cache:
    """Features that were made lately; counts for people."""

    def __init__(self) -> None:
        self.kept: OrderedDict[int, float] = OrderedDict()
        self.hits = self.gone = 0

    def __getitem__(self, number: int) -> float:
        if number in self.kept:
            self.kept.move_to_end(number)
            self.hits += 1
            return self.kept[number]
        value = math.sin(number)
        self.kept[number] = value
        while len(self.kept) > 4:
            self.kept.popitem(last=False)
            self.gone += 1
        return value


def with_a_cache(state: State, number: int) -> None:
    state.w = state.w * 0.9 + state.own_cache[number * 7 % 5]


def test_a_cache_of_what_was_made_lately_is_made_again() -> None:
    assert check(trainer(weights(own_cache=Cache()), with_a_cache), scenarios="all").verdict == "holds"


def orders_an_epoch(state: State, number: int) -> None:
    if state.own_epoch != number // 6:
        state.own_epoch = number // 6
        state.own_order = np.random.default_rng(state.own_epoch).permutation(6)
        state.own_made += 1
    descend(state, int(state.own_order[number % 6]))


def lowers_the_rate(state: State, number: int) -> None:
    if state.epoch != number // 6:
        state.epoch = number // 6
        state.rate = state.rate * 0.8
    descend(state, number, state.rate)


def test_what_is_made_for_a_key_is_made_again() -> None:
    given = weights(own_epoch=None, own_order=None, own_made=0)
    assert check(trainer(given, orders_an_epoch), scenarios="all").verdict == "holds"


def test_what_is_changed_when_a_key_changes_is_lost() -> None:
    given = weights(epoch=None, rate=0.3)
    assert check(trainer(given, lowers_the_rate)).verdict == "holds"
    assert first(check(trainer(given, lowers_the_rate, ("epoch",)))) == "state.epoch"


def sees(state: State, number: int) -> None:
    descend(state, number)
    state.seen.add(number)


def report(folder: Path, state: State, start: int) -> None:
    known = {"resumed": start > 0, "from": start, "file": f"state of {start}" if start else None}
    (folder / "report.json").write_text(json.dumps({**known, "incomplete": len(state.seen) != 20}))


def missing(folder: Path, state: State, start: int) -> None:
    left = set(range(20)) - state.seen
    (folder / "report.json").write_text(json.dumps({"missing": len(left), "least": min(left, default=None)}))


def test_a_report_may_say_where_its_process_began() -> None:
    assert check(trainer(weights(seen=set()), sees, end=report)).verdict == "holds"


def test_a_report_of_what_was_lost_is_no_beginning() -> None:
    assert check(trainer(weights(seen=set()), sees, end=missing)).verdict == "holds"
    assert first(check(trainer(weights(seen=set()), sees, ("seen",), end=missing))) == "state.seen"


def reduce(state: State) -> None:
    state.rate = max(state.rate * 0.5, 1e-4)


def has_a_plateau(state: State, number: int) -> None:
    descend(state, number, state.rate)
    state.bad += 1
    if state.bad > 60:
        reduce(state)


def test_a_count_by_which_a_function_moves_the_rate_beyond_the_run_is_lost() -> None:
    given = weights(rate=0.3, bad=0)
    assert check(trainer(given, has_a_plateau)).verdict == "holds"
    assert first(check(trainer(given, has_a_plateau, ("bad",)), scenarios=("kill",))) == "state.bad"


def counts_words(state: State, number: int) -> None:
    word = number * number % 11
    while len(state.counts) <= word:
        state.counts.append(0)
    state.counts[word] += 1
    state.w = state.w * 0.9 + 1 / state.counts[word]


def test_a_list_of_counts_is_no_record_of_the_past() -> None:
    given = weights(counts=[])
    assert check(trainer(given, counts_words)).verdict == "holds"

    def forget(state: State) -> None:
        state.counts = [1] * len(state.counts)

    assert first(check(trainer(given, counts_words, made=forget), scenarios=("kill",))).startswith("state.counts[")


def cooling() -> Iterator[float]:
    k = 0
    while True:
        yield 0.3 / (1 + 0.1 * k)
        k += 1


def cools(*, lost: bool) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        w, begin, rates, path = np.ones(2), 0, cooling(), folder / "state.pkl"
        if path.exists():
            w, begin = pickle.loads(path.read_bytes())
            for _ in range(0 if lost else begin):
                next(rates)
        for number in range(begin, steps):
            yield number
            w = w - next(rates) * (w - math.sin(number))
            if number % 4 == 3:
                path.write_bytes(pickle.dumps((w, number + 1)))
        return w

    return train


def test_an_endless_generator_that_gives_no_data_is_named() -> None:
    assert check(cools(lost=False)).verdict == "holds"
    assert first(check(cools(lost=True))).startswith("rates")


def decays(state: State, number: int) -> None:
    state.w = state.w - 0.1 * (state.w - math.sin(number)) - state.decay * state.w


def test_a_rate_of_nothing_is_a_setting() -> None:
    def default(state: State) -> None:
        state.decay = 0.1 if any(state.w != 1) else 0.0

    assert first(check(trainer(weights(decay=0.0), decays, made=default))) == "state.decay"


def keeps_a_batch(state: State, number: int) -> None:
    state.own_batch = np.full(2, math.sin(number)) * state.scale
    state.w = state.w - 0.1 * (state.w - state.own_batch)
    state.scale *= 0.98


def test_what_a_step_sets_before_it_reads_it_is_named_last() -> None:
    given = weights(scale=1.0, own_batch=None)
    assert check(trainer(given, keeps_a_batch)).verdict == "holds"
    assert first(check(trainer(given, keeps_a_batch, ("scale",)))) == "state.scale"


def fills_a_table(state: State, number: int) -> None:
    state.table[f"{number},x"] = 0.9 * state.table.get(f"{number - 1},x", 0.0) + math.sin(number)


def test_what_is_put_under_new_keys_is_trained() -> None:
    def table_alone() -> State:
        return State(table={})

    assert check(trainer(table_alone, fills_a_table)).verdict == "holds"
    assert first(check(trainer(table_alone, fills_a_table, ("table",)))).startswith("state.table")


def has_a_heap(state: State, number: int) -> None:
    heapq.heappush(state.heap, (abs(math.sin(number)), number))
    state.total += state.heap[0][0] + 0.01 * state.scale
    state.w = 0.9 * state.w + 0.01 * state.total
    while len(state.heap) > 5:
        heapq.heappop(state.heap)


def test_neither_an_element_of_a_heap_nor_an_equal_number_of_another_type_is_a_setting() -> None:
    given = weights(heap=[], total=0.0, scale=4.0)

    def again(state: State) -> None:
        state.heap, state.scale = sorted(state.heap), int(state.scale)

    assert check(trainer(given, has_a_heap, made=again)).verdict == "holds"
    found = check(trainer(given, has_a_heap, ("total",), made=again))
    assert found.verdict == "broken"
    assert "settings" not in found.components


def rotates(*, keeps: int = 3, forgets: bool = False) -> Trainer:
    """Return a trainer that keeps its last checkpoints and saves once more at its end."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        def numbers() -> list[int]:
            return sorted(int(path.stem[1:]) for path in folder.glob("c*.npy"))

        def save(number: int) -> None:
            np.save(folder / f"c{number}.npy", w)
            for old in numbers()[: -(2 if forgets and resumed else keeps)]:
                (folder / f"c{old}.npy").unlink()

        begin = max(numbers(), default=0)
        resumed = begin > 0
        w = np.load(folder / f"c{begin}.npy") if begin else np.ones(2)
        number, saved = begin, begin
        while number < steps:
            yield number
            w = w - 0.3 * (w - math.sin(number))
            number += 1
            if number % 4 == 0:
                save(number)
                saved = number
        if saved != number:
            save(number)
        return w

    return train


@pytest.mark.parametrize("keeps", [3, 99])
def test_a_last_save_takes_its_place_in_a_rotation_when_a_run_is_extended(keeps: int) -> None:
    found = check(rotates(keeps=keeps), scenarios="extend", steps=24, stop_at=17)
    assert (found.verdict, found.scenarios) == ("holds", ("extend",)), found


def test_a_rotation_that_keeps_less_is_red() -> None:
    found = check(rotates(forgets=True), scenarios="extend", steps=24, stop_at=17)
    assert found.suspects[0].component == "checkpoint.retention"


def rows_of(index: Path) -> list[dict[str, Any]]:
    return json.loads(index.read_text()) if index.exists() else []


def scored(w: np.ndarray, number: int) -> tuple[np.ndarray, float]:
    w = w - 0.3 * (w - math.sin(number))
    return w, 9.0 - number + 5 * (8 < number < 14)


def with_an_index(*, lost: bool) -> Trainer:
    """Return a trainer that reads its index of checkpoints at each save, and counts by itself."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, best, waited, number, index = np.ones(2), math.inf, 0, 0, folder / "index.json"
        if index.exists():
            row = json.loads(index.read_text())[-1]
            w, number, best = np.array(row["w"]), row["number"], row["best"]
            waited = 0 if lost else row["waited"]
        while number < steps:
            yield number
            w, score = scored(w, number)
            number += 1
            if number % 3 == 0:
                rows = rows_of(index)
                if score < best:
                    best, waited = score, 0
                else:
                    waited += 1
                if waited >= 60:
                    break
                row = {"w": w.tolist(), "number": number, "best": best, "waited": waited, "score": score}
                index.write_text(json.dumps([*rows, row]))
        return w

    return train


def derives(folder: Path, steps: int) -> Iterator[int]:
    """A trainer that finds in its index what it had counted."""
    w, waited, number, index = np.ones(2), 0, 0, folder / "index.json"
    if index.exists():
        row = json.loads(index.read_text())[-1]
        w, number = np.array(row["w"]), row["number"]
    while number < steps:
        yield number
        w, score = scored(w, number)
        number += 1
        if number % 3 == 0:
            rows = rows_of(index)
            waited = sum(one["score"] < score for one in rows)
            if waited >= 60:
                break
            index.write_text(json.dumps([*rows, {"w": w.tolist(), "number": number, "score": score}]))
    return w


def test_a_count_that_is_reset_is_lost_though_the_step_reads_an_index() -> None:
    assert check(with_an_index(lost=False), scenarios="all").verdict == "holds"
    assert check(derives, scenarios="all").verdict == "holds"
    assert first(check(with_an_index(lost=True), scenarios=("kill",))) == "waited"


def of_phases(*, lost: bool, within: bool) -> Trainer:
    """Return a trainer of phases; a resumed process begins with the list of those that are left."""

    def phase(state: dict[str, Any], name: str, rate: float, end: int, file: Path) -> Iterator[int]:
        while state["t"] < end:
            yield state["t"]
            state["v"] = 0.5 * state["v"] + state["w"] - math.sin(state["t"])
            state["w"] = state["w"] - rate * state["v"]
            state["t"] += 1
            if state["t"] % 4 == 0:
                file.write_bytes(pickle.dumps((state, name)))

    def train(folder: Path, steps: int) -> Iterator[int]:
        todo, state, file = (
            ["warm", "main", "cool"],
            {"w": np.ones(3), "v": np.zeros(3), "t": 0},
            folder / "state.pkl",
        )
        rates = {"warm": 0.1, "main": 0.5, "cool": 0.2}
        if file.exists():
            state, left = pickle.loads(file.read_bytes())
            todo = todo[todo.index(left) :]
            state |= {"v": np.zeros(3)} if lost else {}
        for name, end in (("warm", 6), ("main", 11), ("cool", steps)):
            if name in todo:
                if within:
                    yield from phase(state, name, rates[name], end, file)
                else:
                    for step in phase(state, name, rates[name], end, file):
                        reached = step
                        yield reached
        return state["w"]

    return train


@pytest.mark.parametrize("within", [True, False])
def test_a_list_of_what_is_left_to_do_is_shorter_after_a_resume(within: bool) -> None:
    assert check(of_phases(lost=False, within=within), stop_at=14).verdict == "holds"
    assert first(check(of_phases(lost=True, within=within), stop_at=14)) == "state.v"


def of_words(*, lost: bool, counted: int) -> Trainer:
    """Return a trainer of counts of letters that follow each other, and of one rate that soon stays as it is."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        counts, mix, last, step = {f"{n}": 0 for n in range(counted)}, 0.5, 0, 0
        if (file := folder / "state.pkl").exists():
            counts, mix, kept, step = pickle.loads(file.read_bytes())
            last = 0 if lost else kept
        while step < steps:
            yield step
            last = (last + 2 + step % 2) % counted
            counts[f"{last}"] += 1
            mix = max(0.05, mix - 0.15 * (counts[f"{last}"] < 2))
            step += 1
            if step % 4 == 0:
                file.write_bytes(pickle.dumps((counts, mix, last, step)))
        return mix

    return train


def test_many_counts_are_trained_beside_a_number_that_soon_rests_and_one_is_not() -> None:
    found = check(of_words(lost=False, counted=9), steps=30)
    assert found.verdict == "holds", found
    assert "whole numbers are taken for what is trained" in found.text()
    assert first(check(of_words(lost=True, counted=9), steps=30)).startswith("last")
    assert check(of_words(lost=False, counted=1), steps=30).verdict == "inconclusive"
