"""A launcher: starts a program in several processes, tells each its place, and ends all when one is gone."""

import os
import subprocess
import sys
import time


def main(count: int, *program: str) -> int:
    ranks = [
        subprocess.Popen([sys.executable, *program], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(count)})
        for rank in range(count)
    ]
    while any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks):
            for rank in ranks:
                rank.terminate()
        time.sleep(0.05)
    return max(abs(rank.returncode) for rank in ranks)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
