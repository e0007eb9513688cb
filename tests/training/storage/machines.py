"""Workers of several machines, forked: `python -m tests.training.storage.machines FOLDER URL`, once for all times."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from training.worker import main as work


def machine(folder: Path, rank: int) -> Path:
    """All that a machine has: its job, its output and its cache."""
    return folder / f"machine-{rank}"


def start(folder: Path, url: str, rank: int, port: int, num_machines: int) -> int:
    """One worker on one machine, as torchrun would start it there; returns its process."""
    if child := os.fork():
        return child
    own = machine(folder, rank)
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(num_machines),
        LOCAL_RANK="0",
        LOCAL_WORLD_SIZE="1",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        XDG_CACHE_HOME=str(own / "cache"),
    )
    output = os.open(own / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    code = 1
    try:
        code = work([str(own / "job.json"), "--storage", url])
    finally:
        sys.stdout.flush()
        os._exit(code)


def main() -> None:
    """Start the machines whenever a file `go-N` names a port, and write down how they ended."""
    folder, url, num_machines = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    for number in (1, 2):
        while not (go := folder / f"go-{number}").is_file():
            time.sleep(0.02)
        port = int(go.read_text())
        children = [start(folder, url, rank, port, num_machines) for rank in range(num_machines)]
        (folder / "pids.part").write_text(" ".join(map(str, children)))
        (folder / "pids.part").rename(folder / f"pids-{number}")
        ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        (folder / f"ended-{number}").write_text(" ".join(map(str, ended)))


if __name__ == "__main__":
    main()
