"""One hostile or broken file: what is spoiled, whether it is sealed again, and what must come of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.hostile.runs import NEWEST, Sandbox

Outcome = Literal["damaged", "refused", "valid", "foreign", "seal", "harmless", "run"]
"""
| outcome | sealed | verify | restore |
|---|---|---|---|
| `damaged` | as before the damage | names the file | refused, by the same name |
| `refused` | again: every digest fits, as an attacker can make it | whole | the loader itself refuses |
| `valid` | by hand, validly | whole | the loader itself refuses |
| `foreign` | not at all, and restored by its step | says so | the loader itself refuses |
| `seal` | by hand: the seal or the directory is what is wrong | not whole | refused |
| `harmless` | again | whole | the state is the one before, leaf by leaf |
| `run` | a file of the run | not asked | the process refuses to start, or starts from the same state |

Refused means: a ParityError whose message names the file or the leaf and the reason, and an unchanged trainer.
"""

Spoil = Callable[[Sandbox], None]


@dataclass(frozen=True)
class Entry:
    """One entry of the catalogue."""

    id: str
    side: str
    outcome: Outcome
    names: str
    """Regular expression that the message must contain: the file or leaf at fault; empty for harmless ones."""
    spoil: Spoil
    resume: int = NEWEST
    """Step that is asked for; the newest is taken without asking where a whole process starts."""


def both(id: str, outcome: Outcome, names: str, spoil: Callable[[str], Spoil]) -> list[Entry]:
    """Return an entry for each side; `spoil` is given the side's name."""
    return [Entry(f"{id}-{side}", side, outcome, names, spoil(side)) for side in ("torch", "jax")]
