"""The layout of the results page: a summary of all bars, a section for each subject, one environment for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from parity.report import BENCH_HEADS, GROWTHS, bench_growths, bench_rows, cell, flatten, surroundings, table
from parity.results import BenchmarkFile

__all__ = [
    "OTHER",
    "SUBJECTS",
    "Part",
    "Subject",
    "bars_summary",
    "environment_section",
    "part_of",
    "subject_sections",
]

Cells = Sequence[str]


class Part(NamedTuple):
    """One file of benchmarks, as the page shows it."""

    measured: str
    """When, and at which commit."""
    rows: Sequence[Cells]
    """Cells of each ratio, in the order of `BENCH_HEADS`."""
    growths: Sequence[Cells]
    """Cells of each straight line, in the order of `GROWTHS`."""
    environment: Sequence[tuple[str, str]]
    """Dotted name and value of what a time depends on."""


class Subject(NamedTuple):
    """What a section is about."""

    title: str
    begins: tuple[str, ...]
    """How the names of its benchmarks begin."""
    what: str
    """What is measured."""
    why: str
    """Why its bar is what it is; of a subject without a bar, why it has none."""


SUBJECTS = (
    Subject(
        "The seal",
        (
            "test_delay_of_the_loop_by_a_save_with_the_seal",
            "test_verify",
            "Delay of the loop by a save with the seal",
            "Verify against",
        ),
        "What the digests of a checkpoint add to the time that a save takes from the loop, and how fast they are "
        "verified.",
        "No bar: the saves and restores above are judged with their digests.",
    ),
    Subject(
        "A scan over a loop",
        ("Scan against loop", "Trainer scan against loop", "Chunk lengths", "Devices"),
        "One compiled `lax.scan` over many steps against a Python loop over the same jitted step, the batches on "
        "the device beforehand, the losses equal bit for bit; then the whole twin in both modes, chunks of several "
        "lengths, and several forced devices on one processor.",
        "A loop pays for each call, a scan once, so the bar follows the time of a step: 10 times at 10 microseconds"
        " or less, 3 at 20, 1.1 at 200; beyond that a scan must only not lose, at least 0.97.",
    ),
    Subject(
        "The twins over loops written by hand",
        ("JAX twin against", "PyTorch twin against a bare loop", "Compiled PyTorch twin", "Shared masks"),
        "Each twin against the loop that one would write, over the same batches to the same losses. The twin also "
        "draws the data order, digests every batch and makes a record of every step.",
        "A suite that slows training is not used: at most 1.02 (JAX) or 1.03 (PyTorch) times the time of the bare "
        "loop for steps of a millisecond or more; below, 10 microseconds a step. What has no bar does other work: "
        "the two sides, two kinds of dropout, a scan that rounds otherwise (`flat`).",
    ),
    Subject(
        "The PyTorch twin and other trainers",
        ("PyTorch twin against",),
        "1,000 steps of `mlp-digits` by the twin, by Lightning, by the Hugging Face Trainer and by Accelerate, to "
        "the same losses.",
        "How much faster than a trainer a loop can be depends on the trainer, and the loop by hand shows it; so the"
        " twin's ratio to the peer is divided by the bare loop's, and at most 1.03 passes. The plain ratios have no"
        " bar.",
    ),
    Subject(
        "The delay of the loop by a save",
        ("Delay of the loop",),
        "The time that a save takes from the loop, against one copy of the state into warm memory.",
        "A save must copy the state before the next step changes it, and need not do more while the loop waits: at "
        "most 1.5 copies, from 100 million parameters on, where bytes and not files decide. The time for each "
        "parameter must not grow with the size: at most 1.25.",
    ),
    Subject(
        "The time until a save is durable",
        ("Time until durable",),
        "From the call to the moment at which a crash loses nothing, against a raw write and fsync of the same "
        "bytes.",
        "A disk sets the time, and digests and files may add a quarter: at most 1.25, from 100 million parameters "
        "on. `torch.save`, safetensors and plain Orbax do less, so their ratios have no bar.",
    ),
    Subject(
        "Training with saves",
        ("Slowdown of training",),
        "Training with a save every 10, 100 and 1,000 steps, 10 million parameters.",
        "At most 1.25 times the run that writes the same bytes raw in the background, and not slower than with a "
        "plain save in the background. Against a run without saves there is no bar: the disk decides.",
    ),
    Subject(
        "Restore",
        ("Restore",),
        "A restore that verifies every byte, against reading the same bytes from the page cache into new memory.",
        "The bytes are read, digested and placed: at most 2.0, from 100 million parameters on.",
    ),
    Subject(
        "Peak memory of a save",
        ("Peak memory",),
        "The peak of the process above that of its steps, in copies of the state.",
        "One copy is what a save that does not stop the loop needs: at most 1.0.",
    ),
    Subject(
        "Checks",
        ("Check against bare runs", "Time to verdict", "Capture against digests"),
        "`parity.resumes` against the same runs without the check, `parity check resume` and its parts, and the "
        "capture of the live state against digests of the same bytes.",
        "A check that is slow is not run: at most 5 s inline and 15 s in processes, or 1.25 times the runs where "
        "these take longer; a capture at most 1.5 times the digests that it cannot do without.",
    ),
    Subject(
        "Conversions",
        (
            "Conversion against",
            "Transposing conversion",
            "Inspect",
            "Many small arrays",
            "To DCP",
            "Conversion",
        ),
        "2 GB with the moments of AdamW from PyTorch to Orbax and back, read back and sealed, against `cp` and "
        "fsync of the same bytes; what is shown without reading an array.",
        "A conversion reads and writes each byte as a copy does, and may take half as long again for digests and "
        "for reading back: at most 1.5, or 2.0 where every matrix is transposed. Looking into a file must not read "
        "it: at most 1 s.",
    ),
    Subject(
        "Optimizers",
        ("Update against bare equations", "Trace", "Compilation", "Step of"),
        "An update of 10 million parameters by each optimizer of `jax_side.optim` against the same equations in "
        "bare `jax.numpy`, both ending at the same parameters.",
        "Exactness must not cost speed: at most 1.05. The nearest in Optax usually takes other steps, so its ratio "
        "has no bar.",
    ),
)
"""In the order of the page, but for the first, whose names begin as others' do; it comes after the peak of memory."""

OTHER = Subject(
    "Other benchmarks", ("",), "What belongs to none of the subjects above.", "Each bar stands in its row."
)

_ORDER = (*SUBJECTS[1:9], SUBJECTS[0], *SUBJECTS[9:], OTHER)

_BAR, _OUTCOME = BENCH_HEADS.index("bar"), len(BENCH_HEADS) - 1


def part_of(file: BenchmarkFile) -> Part:
    """Return what the page shows of a file."""
    environment = [(name, str(value)) for name, value in flatten(surroundings(file))]
    return Part(file.measured, bench_rows(file), bench_growths(file), environment)


def bars_summary(parts: Sequence[Part]) -> str:
    """Return how many bars are met, which are missed, and which are undecided, each with figure, interval and bar."""
    rows = [row for part in parts for row in part.rows]
    count = Counter(row[_OUTCOME] for row in rows)
    judged = sum(count[outcome] for outcome in ("met", "missed", "undecided"))
    if not judged:
        return "No ratio with a bar was measured."
    lines = [
        f"Of {judged} ratios with a bar, {count['met']} meet it and {count['missed']} miss it; {count['undecided']} "
        "are undecided: the bar lies within the 95 % interval, which is not success."
    ]
    for outcome in ("missed", "undecided"):
        found = [row for row in rows if row[_OUTCOME] == outcome]
        if found:
            heads = (outcome, "ratio", "median", "95 % interval", "bar")
            lines.append(
                table(heads, [(row[0], row[1].partition(" (")[0], row[2], row[3], row[_BAR]) for row in found])
            )
    return "\n\n".join(lines)


def subject_sections(parts: Sequence[Part]) -> list[str]:
    """Return the section of each subject of which something was measured."""
    out = []
    for subject in _ORDER:
        shown = [(part, [r for r in part.rows if _subject_of(r) is subject]) for part in parts]
        rows = [row for _, found in shown for row in found]
        growths = [row for part in parts for row in part.growths if _subject_of(row) is subject]
        if not rows and not growths:
            continue
        count = Counter(row[_OUTCOME] for row in rows)
        judged = [f"{count[outcome]} {outcome}" for outcome in ("missed", "undecided", "met") if count[outcome]]
        when = dict.fromkeys(cell(part.measured) for part, found in shown if found)
        text = [f"## {subject.title}: {', '.join(judged) or 'no bar'}", f"{subject.what} {subject.why}"]
        text.append(f"Measured {'; '.join(when)}.")
        text += [table(BENCH_HEADS, rows)] if rows else []
        text += [table(GROWTHS, growths, right=3)] if growths else []
        out.append("\n\n".join(text))
    return out


def environment_section(checks: Mapping[str, Any], parts: Sequence[Part]) -> str:
    """Return one table of what all results depend on; a value in which they differ has a row for each.

    Args:
        checks: The environment of the checks.
        parts: The benchmarks.
    """
    own = [(name, str(value)) for name, value in flatten(checks)]
    sources = [("checks", own), *((part.measured, part.environment) for part in parts)]
    values: dict[str, dict[str, list[str]]] = {}
    for source, rows in sources:
        for name, value in rows:
            values.setdefault(name, {}).setdefault(value, []).append(source)
    shown = table(("what", "value"), _environment_rows(values))
    said = "One for all results above; where they differ, a row for each"
    return f"## Environment\n\n<details><summary>{said}</summary>\n\n{shown}\n\n</details>"


def _environment_rows(values: Mapping[str, Mapping[str, Sequence[str]]]) -> Iterable[tuple[str, str]]:
    for name, found in values.items():
        for value, sources in found.items():
            yield (name if len(found) == 1 else f"{name} ({'; '.join(sources)})", value)


def _subject_of(row: Cells) -> Subject:
    return next((one for one in SUBJECTS if row[0].startswith(one.begins)), OTHER)
