"""The subcommands of `parity`: help, examples and exit codes of each, and the parser that is made of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module, metadata

from parity.cli.parser import Parser

__all__ = ["COMMANDS", "Command", "make_parser"]

PACKAGE = "parity-suite"

OF_ALL = "completion"
"""The command that looks at the arguments of all others."""

REFUSED = "refused: a wrong option, or something that is not there or not whole"
FAILED = "an error of the system, such as a full disk"


@dataclass(frozen=True, kw_only=True)
class Command:
    """One subcommand, as its help shows it."""

    help: str
    """What it does, in one line."""
    examples: tuple[str, ...]
    """Command lines that work."""
    codes: Mapping[int, str]
    """Exit code to its meaning; 3 only where it is more than an error of the system."""
    add: str
    """Module here and function that adds its arguments; loaded where the command is asked for."""

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Load the command and add its arguments."""
        module, _, name = self.add.partition(":")
        getattr(import_module(f"{__package__}.{module}"), name)(parser)

    @property
    def epilog(self) -> str:
        """Return the examples and the exit codes, as text that stands below the options."""
        codes = dict(sorted({3: FAILED, **self.codes}.items()))
        lines = ["examples:", *(f"  {line}" for line in self.examples), "", "exit codes:"]
        return "\n".join([*lines, *(f"  {code}  {text}" for code, text in codes.items())])


COMMANDS: dict[str, Command] = {
    "demo": Command(
        help="show the resume check on a loop that resumes exactly, and on the same loop with a bug; seconds",
        examples=("parity demo", "parity demo --write train.py"),
        codes={0: "the loop holds and the bug was named", 1: "a verdict was another one", 2: REFUSED},
        add="demo:add",
    ),
    "train": Command(
        help="train a run, or resume it",
        examples=(
            "parity train --side torch --spec mlp-digits --dir runs/a --steps 300",
            "parity train --side torch --spec mlp-digits --dir runs/a --steps 600     # resumes from step 300",
            "parity train --side jax --spec my.toml --dir runs/b --set optimizer.lr=3e-4 --resume best",
        ),
        codes={
            0: "trained, or nothing to do",
            1: "the loss or the gradient was not finite",
            2: REFUSED,
            3: "a save failed, or another error of the system",
        },
        add="train:add",
    ),
    "launch": Command(
        help="start several processes of a run on this machine, for trying; clusters and torchrun have their own",
        examples=(
            "parity launch --processes 2 -- train --side torch --spec mlp-digits --dir runs/a --set mesh.data=2",
            "parity launch --processes 2 -- train --side jax --spec mlp-digits --dir runs/b --set mesh.data=2",
        ),
        codes={
            0: "all processes returned 0; any other code is that of the first that failed",
            2: REFUSED,
            3: "a process is gone, or an error of the system",
        },
        add="launch:add",
    ),
    "check": Command(
        help="prove that runs resume, agree across sides, and can be handed over",
        examples=(
            "parity check --report reports/check",
            "parity check resume --spec cnn-digits --sides jax --steps 500 --kill-at 230 --kill-at 410",
            "parity check twins handover --spec my.toml --json > check.json",
        ),
        codes={
            0: "every check holds",
            1: "a check is broken: something was lost or changed",
            2: REFUSED,
            3: "a check crashed, or an error of the system",
            4: "a check could not judge",
            5: "nothing was compared",
        },
        add="check:add",
    ),
    "inspect": Command(
        help="show what a checkpoint of any tool holds, and what a resume from it would miss",
        examples=(
            "parity inspect model.safetensors",
            "parity inspect checkpoint.pt --all",
            "parity inspect runs/a/checkpoints/300 --json",
        ),
        codes={0: "shown", 2: REFUSED, 5: "it holds nothing"},
        add="inspect:add",
    ),
    "compare": Command(
        help="compare two runs, two checkpoints, or two results",
        examples=(
            "parity compare runs/a runs/b",
            "parity compare runs/a/checkpoints/300 runs/b/checkpoints/300",
            "parity compare old/check.json new/check.json",
            "parity compare old/bench.json new/bench.json --fail-on ratio:5%",
        ),
        codes={
            0: "equal bit for bit; of two results: nothing got worse",
            1: "different, or a checkpoint is damaged; of two results: something got worse",
            2: REFUSED + ", or two of different kinds",
            4: "a checkpoint has no seal or an object that was not read, or a check is gone",
            5: "nothing to compare",
        },
        add="compare:add",
    ),
    "convert": Command(
        help="write a checkpoint in another format: all of a training state, a line for every leaf",
        examples=(
            "parity convert ckpt.pt ckpt-orbax --to orbax --rules RULES.toml",
            "parity convert ckpt-orbax back.pt --to torch.save",
            "parity convert ckpt.pt model.safetensors --to safetensors --only params",
        ),
        codes={
            0: "written and sealed",
            1: "a leaf was refused, and nothing was written",
            2: REFUSED,
            5: "it holds nothing",
        },
        add="convert:add",
    ),
    "map": Command(
        help="find which leaf of one model is which of another, and prove it in float64",
        examples=(
            "parity map --torch mine:Model --jax mine_jax:Model --inputs 'i[2,16]<65' -o map.toml",
            "parity map last.pt --torch mine:Model --torch-args '64, layers=2' --jax mine_jax:Model",
            "parity map --check map.toml --torch mine:Model --jax mine_jax:Model --json",
            "parity map --torch mine:Model --torch mine:Refactored",
        ),
        codes={
            0: "every row is sure, and the two models are the same",
            1: "a leaf has no counterpart, a rule is wrong, or an output or a gradient parts",
            2: REFUSED,
            4: "a row is not sure, or something could not be looked at",
        },
        add="model_map:add",
    ),
    "where": Command(
        help="find the first pair of modules of two models whose values part",
        examples=(
            "parity where --torch mine:Model --jax mine_jax:Model --inputs 'i[2,16]<65'",
            "parity where --torch mine:Model --jax mine_jax:Model --rules map.toml --json",
        ),
        codes={
            0: "nothing parts",
            1: "a pair of modules parts",
            2: REFUSED,
            4: "a row of the map is not sure, or no module could be looked at",
        },
        add="where:add",
    ),
    "port": Command(
        help="prove that a port trains as its trainer does, or name the first stage that parts",
        examples=(
            "parity port --torch mine --jax mine_jax",
            "parity port --torch mine --torch mine_refactored --until steps --json",
            "parity port --torch mine --jax mine_jax --step train_step --rules map.toml",
        ),
        codes={
            0: "every stage that was asked for is equal",
            1: "a stage parts",
            2: REFUSED,
            4: "a stage could not be looked at, and none parts",
        },
        add="port:add",
    ),
    "handover": Command(
        help="check that a training goes on in another trainer as in its own, from one checkpoint",
        examples=(
            "parity handover last.pt --torch mine:train --jax mine_jax:train --rules map.toml --place to --steps 50",
            "parity handover run/40 --jax mine_jax:train --torch mine:train --convert mine:carry --steps 50 --json",
        ),
        codes={
            0: "what was taken over is equal, and both train alike to the end",
            1: "something was lost, or they part",
            2: REFUSED,
            4: "nothing could be concluded: the trainer does not read the checkpoint, or nothing was compared",
        },
        add="handover:add",
    ),
    "rules": Command(
        help="check the rules of a conversion against a checkpoint",
        examples=("parity rules check RULES.toml ckpt.pt",),
        codes={
            0: "every parameter has one place and leads back",
            1: "one has none, or does not lead back",
            2: REFUSED,
        },
        add="convert:add_rules",
    ),
    "verify": Command(
        help="compare checkpoints with their seals, byte by byte",
        examples=("parity verify runs/a", "parity verify runs/a/checkpoints/300"),
        codes={
            0: "every checkpoint is whole",
            1: "a checkpoint is damaged or missing, or differs from --against",
            2: REFUSED,
            4: "a checkpoint has no seal",
            5: "there is no checkpoint",
        },
        add="checkpoints:add_verify",
    ),
    "seal": Command(
        help="seal a checkpoint that another tool saved, so that verify and convert notice every later change",
        examples=("parity seal model.safetensors", "parity seal outputs/checkpoint-500"),
        codes={
            0: "sealed, or sealed before and whole",
            2: REFUSED + ", or it does not fit the seal that it has",
        },
        add="seal:add",
    ),
    "path": Command(
        help="print the directory of a run's best or latest checkpoint",
        examples=("parity path runs/a best", "cp -r $(parity path runs/a latest) backup/"),
        codes={0: "printed", 2: REFUSED},
        add="checkpoints:add_path",
    ),
    "export": Command(
        help="copy a verified checkpoint out of a run, to ship it, or hand the run over to the other side",
        examples=("parity export runs/a best ship/", "parity export runs/a latest runs/b --to jax"),
        codes={0: "copied, and verified before and after", 2: REFUSED},
        add="export:add",
    ),
    "remote": Command(
        help="try what checkpoints need of an object store",
        examples=("parity remote probe s3://bucket/runs/a",),
        codes={0: "everything that was tried is kept", 1: "something is not kept", 2: REFUSED},
        add="stored:add",
    ),
    "metric": Command(
        help="give a checkpoint a metric measured after its save",
        examples=("parity metric runs/a 300 0.972", "parity metric runs/a 300 nan"),
        codes={0: "set", 2: REFUSED},
        add="checkpoints:add_metric",
    ),
    "policy": Command(
        help="show what a checkpoint policy keeps on disk",
        examples=(
            "parity policy simulate --keep-latest 2 --keep-best 1 0.5,0.7,nan,0.6,0.9",
            "parity policy simulate runs/a --keep-every 1000",
        ),
        codes={0: "shown", 2: REFUSED},
        add="policy:add",
    ),
    "report": Command(
        help="show a result of checks or benchmarks, or compare two",
        examples=(
            "parity report reports/check/check.json",
            "parity report bench.json --html bench.html --markdown bench.md",
        ),
        codes={
            0: "every check holds, or every bar is met",
            1: "a check is broken, or a bar is missed",
            2: REFUSED,
            3: "a check crashed, or an error of the system",
            4: "a check could not judge, or no ratio has a bar",
            5: "the result has no check, or no benchmark",
        },
        add="report:add",
    ),
    "bench": Command(
        help="measure the steps per second of the twins",
        examples=(
            "parity bench run --side jax",
            "parity bench run --side torch --spec gpt-text --steps 50 --rounds 7 -o torch.json",
            "parity bench run --side jax --spec my.toml --set batch=512 --mode scan -o new.json",
        ),
        codes={0: "measured", 1: "two ways do other work, so no time counts", 2: REFUSED},
        add="bench:add",
    ),
    "spec": Command(
        help="print every field of a spec with its value, as TOML",
        examples=("parity spec mlp-digits > my.toml", "parity spec my.toml --set optimizer.kind=sgd"),
        codes={0: "printed", 2: REFUSED},
        add="spec:add",
    ),
    "optim": Command(
        help="show what the obvious translation of a PyTorch optimizer changes, and the exact JAX code",
        examples=("parity optim NAdam lr=0.01 momentum_decay=0.01",),
        codes={0: "shown", 2: REFUSED},
        add="optim:add",
    ),
    "completion": Command(
        help="print a script that completes commands and options in a shell",
        examples=(
            "parity completion bash > ~/.local/share/bash-completion/completions/parity",
            "parity completion zsh > ~/.zfunc/_parity",
            "parity completion fish > ~/.config/fish/completions/parity.fish",
        ),
        codes={0: "printed", 2: REFUSED},
        add="completion:add",
    ),
}


def make_parser(words: Collection[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command `parity`.

    Args:
        words: What will be parsed: a command that is not among them is known by its line of help alone and is not
            loaded, for all of them take a second. By default every command has its arguments.
    """
    parser = Parser(
        prog="parity",
        description="Proves that training resumes exactly: in PyTorch, in JAX, and across the two.",
        epilog="`parity COMMAND --help` has examples and exit codes. With NO_COLOR set, nothing is coloured.",
    )
    parser.add_argument("--version", action="version", version=f"parity {_version()}", help="print the version")
    parser.set_defaults(lost_streams="end", parser=parser, run=_help)
    commands = parser.add_subparsers(metavar="COMMAND")
    for name, command in COMMANDS.items():
        one = commands.add_parser(
            name,
            help=command.help,
            description=f"{command.help[0].upper()}{command.help[1:]}.",
            epilog=command.epilog,
        )
        if words is None or name in words or OF_ALL in words:
            command.add_to(one)
    return parser


def _help(options: argparse.Namespace) -> int:
    """Print the help on standard error: nothing was asked for, which is no success of what a script meant to run."""
    options.parser.print_help(sys.stderr)
    return 2


def _version() -> str:
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return "(not installed)"
