"""`python -m torch_side ...` is `parity train --side torch ...`."""

import sys

from parity.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", "--side", "torch", *sys.argv[1:]]))
