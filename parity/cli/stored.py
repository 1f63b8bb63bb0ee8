"""`parity verify` and `parity path` for what lies at a store, and `parity remote probe`: nothing is kept on disk."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console
from rich.text import Text

from parity.checkpoints import describe
from parity.checkpoints.remote import Located, RemoteCheckpoint, locate, verify_remote
from parity.cli.options import mode_of_run, store_url
from parity.cli.whole import print_whole
from parity.errors import CheckpointError
from parity.report import clean, open_console
from parity.results import EXIT_CODES
from parity.storage.stores import StoreUrl, ask, open_store

__all__ = ["add", "print_stored_path", "verify_stored"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `parity remote`."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    one = actions.add_parser(
        "probe",
        help="try what checkpoints need of a store, with a few objects that are removed again",
        description="Try what checkpoints need of a store, with a few objects that are removed again.",
    )
    one.add_argument("url", type=store_url, metavar="URL", help="s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
    one.set_defaults(run=_probe)


def _probe(options: argparse.Namespace) -> int:
    console = open_console(sys.stdout)
    found = ask(open_store(options.url), again=True)
    for row in found.rows:
        word = ("kept", "green") if not row.problem else ("not kept", "bold red")
        console.print(Text.assemble(word, " " * (10 - len(word[0])), f"{row.name}: {row.promise}"), soft_wrap=True)
        if row.problem:
            console.print(Text(clean(f"  {row.problem}")), soft_wrap=True)
    lost = list(dict.fromkeys(row.promise for row in found.problems))
    said = f"not promised there: {'; '.join(lost)}" if lost else "everything that was tried is kept"
    console.print(Text(f"{options.url}: {said}"), soft_wrap=True)
    return EXIT_CODES["broken" if lost else "holds"]


def verify_stored(url: StoreUrl) -> int | None:
    """Print a line for each checkpoint of a run at a store, after every byte of it was read.

    Args:
        url: A run, or the checkpoint of a step.

    Returns:
        0 whole, 1 damaged, 5 none; None where the URL names no run of ours.

    Raises:
        CheckpointError: The step is not there.
        StoreError: The store refused or was not reached.
    """
    found = locate(url)
    if found.head is None:
        return None
    console = open_console(sys.stdout)
    rows = [found.row("latest", None)] if found.step is not None else list(found.head.checkpoints.values())
    whole = [_verified(console, found, row) for row in rows]
    if not rows:
        print(f"parity: {url} holds no checkpoint: nothing was verified", file=sys.stderr)
        return EXIT_CODES["empty"]
    return EXIT_CODES["holds" if all(whole) else "broken"]


def _verified(console: Console, found: Located, row: RemoteCheckpoint) -> bool:
    result = verify_remote(found.store, row)
    url = found.store.url / "checkpoints" / str(row.step)
    other = result.seal is not None and found.head is not None and result.seal.spec_hash != found.head.run
    if result.seal is not None and not result.faults and not other:
        print_whole(console, str(url), result.seal, step=row.step, metric=row.metric)
        return True
    console.print(Text.assemble(("damaged", "bold red"), f"    {url}"), soft_wrap=True)
    for name, problem in describe(result.faults, most=None):
        console.print(Text(clean(f"  {name}: {problem}")), soft_wrap=True)
    if other:
        console.print(Text("  seal.json: belongs to another run"), soft_wrap=True)
    return False


def print_stored_path(options: argparse.Namespace) -> int:
    """Print the URL of a checkpoint of a run, after every byte of it was read; `--unread` reads none.

    Returns:
        0.

    Raises:
        CheckpointError: It is not there, or damaged.
        StoreError: The store refused or was not reached.
    """
    found = locate(options.dir)
    if found.head is None or found.step is not None:
        raise CheckpointError(f"{options.dir} holds no run; give the URL of one, as save.remote has it")
    mode = mode_of_run(options.dir) if options.which == "best" else None
    rows = dict(found.head.checkpoints)
    while True:
        row = Located(found.store, found.head.with_checkpoints(rows)).row(options.which, mode)
        faults = [] if options.unread else verify_remote(found.store, row).faults
        if not faults:
            break
        if not options.or_next:
            url = found.store.url / "checkpoints" / str(row.step)
            raise CheckpointError(f"{url} is not what was sealed:", describe(faults))
        del rows[row.step]
    print(found.store.url / "checkpoints" / str(row.step))
    if options.unread:
        print("parity: the head names it; --unread read no more", file=sys.stderr)
    return 0
