"""The command `parity`: its subcommands, its exit codes."""

from __future__ import annotations

import argparse
import errno
import shlex
import signal
import sys
import traceback
from collections.abc import Sequence

from parity.cli.commands import make_parser
from parity.cli.parser import say
from parity.cli.streams import StreamLost, Streams, end_by_pipe
from parity.errors import ParityError
from parity.results import EXIT_CODES
from parity.runs import leave
from parity.storage import reason

__all__ = ["main"]

NO_SUCH_PLACE = (errno.ENAMETOOLONG, errno.ELOOP)
"""Errors of the system that no path of this name can be without: too long, or a link that leads to itself."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    0 holds (or trained), 1 broken (or diverged), 2 usage, 3 crashed (or could not save or print), 4 inconclusive,
    5 nothing compared; 128 + the signal when one ended training after saving, a check, or, for SIGINT, any command. A
    command whose output is no longer read ends by SIGPIPE; with `argv` given, as from a program, it returns
    128 + SIGPIPE.
    """
    try:
        with Streams() as streams:
            words = [*map(str, sys.argv[1:] if argv is None else argv)]
            try:
                options = make_parser(words).parse_args(argv)
            except KeyboardInterrupt:  # while the command is loaded
                return _stopped()
            options.command = shlex.join(["parity", *words])
            streams.set_policy(options.lost_streams)
            return leave(_run(options))
    except StreamLost as lost:
        if not lost.pipe:
            if sys.stderr is not None:  # print would take standard output for it
                print(f"parity: error: {lost}", file=sys.stderr)
            return EXIT_CODES["crashed"]
        if argv is None:
            end_by_pipe()
        return 128 + signal.SIGPIPE


def _run(options: argparse.Namespace) -> int:
    try:
        return int(options.run(options))
    except ParityError as error:
        say(f"parity: error: {error}", sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # `check`, and `train` once it trains, handle signals themselves
        return _stopped()
    except OSError as error:  # a full or read-only disk, mostly: the message names the file
        if isinstance(error, NotADirectoryError | IsADirectoryError) or error.errno in NO_SUCH_PLACE:
            say(f"parity: error: {reason(error, 'use')}; name another path", sys.stderr)
            return ParityError.exit_code
        say(f"parity: error: {reason(error, 'use')}", sys.stderr)
        return EXIT_CODES["crashed"]
    except Exception:  # our own fault: never to be taken for a verdict
        traceback.print_exc()
        return EXIT_CODES["crashed"]


def _stopped() -> int:
    print("parity: SIGINT: stopped", file=sys.stderr)
    return 128 + signal.SIGINT
