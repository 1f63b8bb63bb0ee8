"""A launcher: starts a program in several processes, tells each its place, and ends all when one is gone.

`launcher.py COUNT PROGRAM` tells it as torchrun does. `launcher.py --as KIND COUNT INTERPRETER PROGRAM` tells it as
`mpirun` of Open MPI (`ompi`), MPICH (`pmi`) or `srun` (`slurm`) do, and leaves all else to the program.
"""

import os
import subprocess
import sys
import time

KINDS = {
    "torchrun": ("RANK", "WORLD_SIZE"),
    "ompi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "pmi": ("PMI_RANK", "PMI_SIZE"),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS"),
}
"""Variables of rank and count."""


def main(*words: str) -> int:
    kind = "torchrun"
    if words[0] == "--as":
        kind, words = words[1], words[2:]
    count, command = int(words[0]), [*([] if kind != "torchrun" else [sys.executable]), *words[1:]]
    of_rank, of_count = KINDS[kind]
    others = {name for names in KINDS.values() for name in names}
    plain = {name: value for name, value in os.environ.items() if name not in others}
    ranks = [
        subprocess.Popen(command, env={**plain, of_rank: str(rank), of_count: str(count)}) for rank in range(count)
    ]
    while any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks):
            for rank in ranks:
                rank.terminate()
        time.sleep(0.05)
    return max(abs(rank.returncode) for rank in ranks)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
