"""The command `parity`: its subcommands, its exit codes."""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Sequence

from parity.cli import bench, check, checkpoints, policy, report, train
from parity.cli.streams import StreamLost, Streams, end_by_pipe
from parity.errors import ParityError
from parity.results import EXIT_CODES
from parity.runs import leave

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    0 holds (or trained), 1 broken (or diverged), 2 usage, 3 crashed (or could not save or print), 4 inconclusive,
    5 nothing compared; 128 + the signal when one ended training after saving, a check, or, for SIGINT, any command. A
    command whose output is no longer read ends by SIGPIPE; with `argv` given, as from a program, it returns
    128 + SIGPIPE.
    """
    try:
        with Streams() as streams:
            options = _parser().parse_args(argv)
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
        print(f"parity: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # `check`, and `train` once it trains, handle signals themselves
        print("parity: SIGINT: stopped", file=sys.stderr)
        return 128 + signal.SIGINT
    except OSError as error:  # a full or read-only disk, mostly: the message names the file
        print(f"parity: error: {error}", file=sys.stderr)
        return EXIT_CODES["crashed"]
    except Exception:  # our own fault: never to be taken for a verdict
        traceback.print_exc()
        return EXIT_CODES["crashed"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="parity",
        description="Proves that training resumes exactly: in PyTorch, in JAX, and across the two.",
    )
    parser.set_defaults(lost_streams="end")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    train.add(commands.add_parser("train", help="train a run, or continue it"))
    checkpoints.add_verify(commands.add_parser("verify", help="compare checkpoints with their seals, byte by byte"))
    checkpoints.add_path(commands.add_parser("path", help="print the directory of a run's best or latest checkpoint"))
    checkpoints.add_export(commands.add_parser("export", help="copy a verified checkpoint out of a run, to ship it"))
    checkpoints.add_metric(commands.add_parser("metric", help="give a checkpoint a metric measured after its save"))
    policy.add(commands.add_parser("policy", help="show what a checkpoint policy keeps on disk"))
    check.add(commands.add_parser("check", help="prove that runs resume, agree across sides, and can be handed over"))
    report.add(commands.add_parser("report", help="show a result of checks or benchmarks, or compare two"))
    bench.add(commands.add_parser("bench", help="compare two runs of the benchmarks by their ratios"))
    return parser
