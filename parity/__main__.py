"""`python -m parity` is the command `parity`."""

import signal
import sys

__all__ = ["run"]


def run() -> int:
    """Load and run the command; Ctrl-C while it is loaded, which takes a second, ends it as it does later."""
    try:
        from parity.cli import main
    except KeyboardInterrupt:
        print("parity: SIGINT: stopped", file=sys.stderr)
        return 128 + signal.SIGINT
    return main()


if __name__ == "__main__":
    sys.exit(run())
