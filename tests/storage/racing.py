"""A process that takes the writer's lock whenever it is told to: `python -m tests.storage.racing`.

Each line of its input is a directory, and a moment of the monotonic clock at which to take it; an answer in JSON
comes out. `release` lets go; `fork` leaves a child behind that holds every handle, and answers with its id.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from parity.errors import LockedError
from parity.storage import WriterLock


def main() -> None:
    """Answer until the input ends."""
    lock = None
    print(json.dumps({"ready": os.getpid()}), flush=True)
    for line in sys.stdin:
        word, _, at = line.strip().partition("\t")
        if word == "release":
            if lock is not None:
                lock.__exit__(None, None, None)
            lock, answer = None, {"released": True}
        elif word == "fork":
            child = os.fork()
            if child == 0:
                signal.pause()
            answer = {"child": child}
        else:
            taking = WriterLock(Path(word))
            while time.monotonic() < float(at):  # busy: sleeping wakes up milliseconds apart
                pass
            try:
                taking.__enter__()
                lock, answer = taking, {"won": True}
            except LockedError as error:
                answer = {"won": False, "text": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
