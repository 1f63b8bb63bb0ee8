"""What `parity port` says of an entry of the corpus, held against the table."""

from __future__ import annotations

import time
from dataclasses import dataclass

from parity.checks.proving import PortProof, prove_port
from parity.errors import ParityError
from tests.ports.corpus.catalog import Entry
from tests.ports.truth import framework_of

__all__ = ["Outcome", "prove_entry"]


@dataclass(frozen=True)
class Outcome:
    """The verdict on one entry."""

    entry: Entry
    proof: PortProof | None
    error: str = ""
    """Why there is no verdict."""
    processor: float = 0.0
    """Seconds of processor time, of all threads."""

    @property
    def verdict(self) -> str:
        return "failed" if self.proof is None else self.proof.verdict

    @property
    def stage(self) -> str:
        """Return where the two part; of what is inconclusive, the first stage that was not seen."""
        if self.proof is None or self.proof.verdict == "holds":
            return ""
        return next(one.name for one in self.proof.stages if one.verdict == self.proof.verdict)

    @property
    def cause(self) -> str:
        return "" if self.proof is None else self.proof.cause

    @property
    def seconds(self) -> float:
        return 0.0 if self.proof is None else self.proof.seconds

    @property
    def named(self) -> bool:
        """Return whether the cause of a wrong port is the one of the table."""
        said = self.cause.lower()
        return bool(said) and all(word.lower() in said for word in self.entry.words)

    @property
    def right(self) -> bool:
        """Return whether the verdict is that of the table, and parts where it says."""
        return self.verdict == ("broken" if self.entry.stage else "holds") and self.stage == self.entry.stage


def prove_entry(entry: Entry, until: str | None = None) -> Outcome:
    """Return what the command says of a reference and a port.

    Args:
        entry: Of the catalogue.
        until: The last stage that is looked at; by default all of them.
    """
    given: dict[str, list[object]] = {}
    for one in (entry.first, entry.second):
        given.setdefault(framework_of(one), []).append(one)
    began = time.process_time()
    proof, error = None, ""
    try:
        proof = prove_port(**given, until=until)
    except ParityError as caught:
        error = " ".join(str(caught).split())
    return Outcome(entry, proof, error, time.process_time() - began)
