"""Arms for a worker."""

import os

from benchmarks.paired import Arm


def arms(start, fails=False):
    """Return an arm that counts its runs from its reset, and says something a worker must not take for an answer."""
    if fails:
        raise ValueError("these arms cannot be built")
    count = [start]

    def run():
        print("a library speaks")
        os.write(1, b"below Python too")
        count[0] += 1
        return count[0]

    def reset():
        count[0] = start

    return [Arm(name="count", run=run, reset=reset)]
