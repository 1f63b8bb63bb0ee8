"""docs/remote.md says what the code does."""

from pathlib import Path

import pytest

from parity.checkpoints.remote import HEAD, LEASE_SECONDS
from parity.runs import copies
from parity.storage import BLOCK
from parity.storage.stores import connect
from tests.remote.mutants import MUTANTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "remote.md"


@pytest.mark.breaks_first
def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    for said in (
        HEAD,
        f"lease of {LEASE_SECONDS:.0f} seconds, renewed every {LEASE_SECONDS / 3:.0f}",
        f"in each of {len(MUTANTS)} variants with one fault",
        f"repeated {connect.RETRIES} times within {connect.RETRY_SECONDS} seconds",
        f"parts of {BLOCK >> 20} MiB",
        f"At the end of a run {copies.PATIENCE_SECONDS:.0f} seconds without an answer",
    ):
        assert said in text, said
