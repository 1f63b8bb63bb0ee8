"""docs/benchmarks.md: its bars are those of the benchmarks, its keys those that are written."""

import math
import re
from dataclasses import fields

import pytest

from benchmarks import bars
from parity.results import EXIT_CODES, Growth, Ratio, Speed
from tests.docs import pages
from tests.docs.pages import ROOT, expect_failure, words
from tests.docs.sources import codes, constants, functions

ROWS = [
    ("test_throughput.py", r"test_jax_twin_against_a_bare.*|compare_jax"),
    ("test_throughput.py", r"test_(compiled_)?torch_twin_against_a_bare.*|compare_torch"),
    ("test_throughput.py", r"test_shared_masks.*|test_jax_twin_against_torch_twin"),
    ("test_speed.py", r"test_steps_per_second.*"),
    ("test_scan_loop.py", r"test_scan_against_loop.*|compare"),
    ("test_scan_loop.py", r"test_trainer_scan.*|test_chunk_lengths|test_devices"),
    ("test_peers.py", r"test_torch_twin_against|ratios"),
    ("test_checkpoints.py", r"test_delay_of_the_loop"),
    ("test_checkpoints.py", r"test_time_until_durable"),
    ("test_checkpoints.py", r"test_restore"),
    ("test_checkpoints.py", r"test_peak_memory"),
    ("test_checkpoints.py", r"against_raw_writes"),
    ("test_checkpoints.py", r"against_plain_saves"),
    ("test_checkpoints.py", r"test_slowdown_of_training|less_copies"),
    ("test_checkpoints.py", r"note_line"),
    ("test_seal_cost.py", r"test_.*"),
    ("test_checks.py", r"test_time_to_verdict"),
    ("test_capture.py", r"test_capture_against_digests"),
    ("test_live_checks.py", r"test_check_against_bare_runs"),
    ("test_optim.py", r"test_update_against_bare_equations"),
    ("test_optim.py", r"test_compilation_against_optax"),
    ("test_conversion.py", r"test_conversion_against_copy"),
    ("test_conversion.py", r"test_transposing_conversion_against_copy"),
    ("test_conversion.py", r"test_many_small_arrays_to_orbax_against_safetensors"),
    ("test_conversion.py", r"test_conversion_to_dcp_against_plain_dcp"),
    ("test_conversion.py", r"test_inspect_and_compare_without_arrays"),
    ("test_inspect.py", r"test_inspect_of_many_tensors"),
    ("test_sharded.py", r"test_a_twin_of_two_processes_against_the_loop_by_hand"),
    ("test_saves_together.py", r"test_a_save_of_two_processes_against_that_of_the_library"),
]
"""File and functions behind each row of the table of bars."""

BAR = r'(?:\bbar ?= ?|most=|proportion=|"raw write", |"read", |peer, )([0-9.]+|LINEAR)'


def bar_of(row: int) -> str:
    """Return the one bar that the functions of a row give; empty without one."""
    file, wanted = ROWS[row]
    found = {
        bar
        for name, text in functions(f"benchmarks/{file}").items()
        if re.fullmatch(wanted, name)
        for bar in re.findall(BAR, text)
    }
    assert len(found) <= 1, found
    bar = next(iter(found), "")
    return str(constants(f"benchmarks/{file}")["LINEAR"]) if bar == "LINEAR" else bar


def bars_in_words() -> list[str]:
    """Return the bars as the page must say them."""
    small, over = f"{bars.SMALL_STEP * 1e3:g} ms", f"{bars.OVERHEAD * 1e6:g} microseconds per step"
    (t1, f1), (t2, f2), (t3, f3) = ((f"{time * 1e6:g}", f"{factor:g}") for time, factor in bars.WANTED)
    live, ranks = constants("benchmarks/test_live_checks.py"), constants("benchmarks/test_sharded.py")["MOST"]
    checkpoints = [f"at most {bar}" if bar else "none" for bar in map(bar_of, range(7, 15))]
    return [
        f"at most {bar_of(0)} from {small} per step on; below, {over}",
        f"at most {bar_of(1)} from {small} on; below, {over}",
        "none",
        "none",
        f"{f1} times at {t1} microseconds per scanned step or less, {f2} at {t2}, {f3} at {t3}, between them a power "
        f"of the time; {bars.speedup_wanted(1.0):g} beyond",
        "none",
        f"at most {bar_of(6)}",
        *checkpoints,
        "none",
        f"{constants('benchmarks/test_checks.py')['WANTED_SECONDS']:g} s, noted, not judged",
        f"at most {bar_of(17)}",
        f"at most {live['SECONDS']['inline']:g} s inline and {live['SECONDS']['process']:g} s in processes, "
        f"or {live['MOST']:g}",
        f"at most {bar_of(19)}",
        f"at most {bar_of(20)}",
        f"at most {bar_of(21)}",
        f"at most {bar_of(22)}",
        f"at most {bar_of(23)}",
        f"at most {bar_of(24)}; none; at most {bars.CONVERSION_MIB} MiB",
        f"at most {float(bar_of(25)):g} s",
        f"at most {bars.INSPECT_SECONDS:g} s",
        f"at most {ranks['torch']:g} (PyTorch), {ranks['jax']:g} (JAX)",
        f"at most {constants('benchmarks/test_saves_together.py')['MOST']:g}",
    ]


def test_the_bars_are_those_of_the_benchmarks():
    shown = pages.table("docs/benchmarks.md", "file", "what against what", "bar")
    assert shown.column("bar") == bars_in_words()
    assert [bar_of(row) for row, words in enumerate(bars_in_words()) if words == "none"] == [""] * 5
    named = [cell.strip("`") for cell in shown.column("file") if cell]
    assert named == list(dict.fromkeys(file for file, _ in ROWS))
    described = shown.column("what against what")
    loop = constants("benchmarks/test_scan_loop.py")
    assert f"chunks of {min(loop['CHUNKS'])} to {max(loop['CHUNKS']):,} steps" in described[5]
    assert f"{', '.join(map(str, loop['DEVICES']))} forced devices" in described[5]
    speed = constants("benchmarks/test_speed.py")
    assert f"{speed['STEPS']:,} steps" in described[3]
    assert f"{', '.join(map(str, speed['DEVICES']))} forced devices" in described[3]
    assert f"{constants('benchmarks/test_peers.py')['STEPS']:,} steps" in described[6]
    update = constants("benchmarks/test_optim.py")
    millions = update["LEAVES"] * math.prod(update["SHAPE"]) // 10**6
    assert f"{millions} M parameters in {update['LEAVES']} leaves" in described[19]
    assert f"with {update['MANY']} leaves" in described[20]
    assert f"{constants('benchmarks/test_inspect.py')['TENSORS']:,} tensors" in described[26]
    assert f"hold from {constants('benchmarks/test_checkpoints.py')['JUDGED']} million" in words(
        pages.read("docs/benchmarks.md")
    )


def test_every_benchmark_stands_in_a_row_of_the_table_of_bars():
    for path in sorted((ROOT / "benchmarks").glob("test_*.py")):
        for name in functions(f"benchmarks/{path.name}"):
            if name.startswith("test_"):
                rows = [wanted for file, wanted in ROWS if file == path.name and re.fullmatch(wanted, name)]
                assert len(rows) == 1, f"{path.name}: {name}"


def test_the_keys_of_a_benchmark_file_are_those_that_are_written():
    shown = dict(pages.table("docs/benchmarks.md", "key", "what").rows)
    assert [name for key in shown for name in codes(key)] == [
        *("ratios", "growth", "bytes", "bytes_per_second", "steps", "steps_per_second", "trains"),
        *("versions", "load_average"),
    ]
    written = (ROOT / "benchmarks/paired.py").read_text(encoding="utf-8")
    assert all(name in written for key in shown for name in codes(key))
    for key, record in (("ratios", Ratio), ("growth", Growth), ("trains", Speed)):
        names = {name for name in codes(shown[f"`{key}`"]) if name not in ("lower", "higher")}
        assert names == {field.name for field in fields(record)} - {"name"}


def test_the_exit_codes_of_the_gate_are_those_of_the_command():
    shown = pages.table("docs/benchmarks.md", "exit code", "meaning").column("exit code")
    assert shown == [str(code) for code in (EXIT_CODES["holds"], EXIT_CODES["broken"], 2, EXIT_CODES["empty"])]


PLANTS = {
    test_the_bars_are_those_of_the_benchmarks: [
        ("docs/benchmarks.md", "at most 1.02 from", "at most 1.03 from"),
        ("docs/benchmarks.md", "load unverified | at most 2.0 |", "load unverified | at most 1.9 |"),
        ("docs/benchmarks.md", "matrix transposed | at most 2.0 |", "matrix transposed | at most 2.5 |"),
        ("docs/benchmarks.md", "10 M parameters | at most 1.25 |", "10 M parameters | at most 1.5 |"),
        ("docs/benchmarks.md", "asynchronous Orbax | at most 1.0 |", "asynchronous Orbax | none |"),
        ("docs/benchmarks.md", "3 at 20, 1.1 at 200", "3 at 20, 1.2 at 200"),
        ("docs/benchmarks.md", "1,000 steps | at most 1.03 |", "1,000 steps | at most 1.02 |"),
        ("docs/benchmarks.md", "| 20 s, noted", "| 10 s, noted"),
        ("docs/benchmarks.md", "15 s in processes", "25 s in processes"),
        ("docs/benchmarks.md", "1, 2, 4, 8 forced", "1, 2, 4 forced"),
        ("docs/benchmarks.md", "on 2, 4, 8 forced", "on 2, 4 forced"),
        ("docs/benchmarks.md", "compiled, 1,000 steps", "compiled, 500 steps"),
        ("docs/benchmarks.md", "from 100 million parameters on", "from 10 million parameters on"),
        ("docs/benchmarks.md", "nearest in Optax | at most 1.05 |", "nearest in Optax | at most 1.1 |"),
        ("docs/benchmarks.md", "in 100 leaves", "in 10 leaves"),
    ],
    test_the_keys_of_a_benchmark_file_are_those_that_are_written: [
        ("docs/benchmarks.md", "`q1`, `q3`", "`q1`"),
        ("docs/benchmarks.md", "`low` and `high`", "`low`"),
        ("docs/benchmarks.md", "`mode`, `devices`", "`mode`"),
        ("docs/benchmarks.md", "| `versions`, `load", "| `load"),
    ],
    test_the_exit_codes_of_the_gate_are_those_of_the_command: [
        ("docs/benchmarks.md", "| 5 | the files", "| 4 | the files"),
    ],
}
"""What a page might say instead: by the test that must notice, the page, its words and others."""


@pytest.mark.parametrize(("test", "plant"), [(test, plant) for test, plants in PLANTS.items() for plant in plants])
def test_a_page_that_says_something_else_is_noticed(test, plant, monkeypatch):
    expect_failure(test, *plant, monkeypatch)
