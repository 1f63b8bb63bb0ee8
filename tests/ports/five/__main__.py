"""The five models of transformers and their ports: `python -m tests.ports.five`, with the extra `peers` installed.

Prints a row for each model, its whole state carried over, and one for each variant of its map; `--write PAGE` puts
the tables into a page, from what was measured last, by this run or by runs before it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.ports.five.table import RECORD, note_carried, note_variant, read_record, tables, write_page


def main() -> int:
    """Measure what was asked for; exit code 1 where a bar is not reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.ports.five", description=__doc__)
    parser.add_argument(
        "--models", default="gpt2,llama,bert,vit,t5,trainer,voice", help="carried over; `none` for none"
    )
    parser.add_argument("--variants", default="", help="maps of variants whose text has one of these, split by ;")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="the page whose tables are written")
    args = parser.parse_args()
    for name in args.models.split(","):
        if name != "none":
            print(note_carried(_carried(name)), flush=True)
    for text in filter(None, args.variants.split(";")):
        from tests.ports.five.rows import VARIANTS, mapped

        for variant in VARIANTS:
            if text in variant:
                print(note_variant(variant, mapped(variant)[1]), flush=True)
    if args.write:
        write_page(args.write)
    text, missed = tables(read_record(RECORD))
    print(text)
    print(*missed, sep="\n")
    return 1 if missed else 0


def _carried(name: str) -> object:
    from tests.ports.five.handover import carry
    from tests.ports.five.hf_trainer import carry_trainer
    from tests.ports.five.voice import carry_voice

    special = {"trainer": carry_trainer, "voice": carry_voice}
    with tempfile.TemporaryDirectory() as folder:
        return special[name](Path(folder)) if name in special else carry(name, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
