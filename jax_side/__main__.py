"""`python -m jax_side ...` is `parity train --side jax ...`."""

import sys

from parity.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", "--side", "jax", *sys.argv[1:]]))
