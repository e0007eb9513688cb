"""A cluster to be joined, whose processes know nothing of the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WITHOUT_TOKEN = {"RAY_AUTH_MODE": "disabled"}

CLUSTER = """
import sys, ray
context = ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
print(context.address_info["gcs_address"], flush=True)
sys.stdin.read()
"""


@contextmanager
def other_ray(folder: Path) -> Iterator[str]:
    """Start one in a folder; gives its address."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "RAY_ADDRESS")}
    # Ray's workers step back behind everything else, which on a busy machine means that they stand still.
    environment |= {"RAY_worker_niceness": "0", **WITHOUT_TOKEN}
    script = folder / "cluster.py"
    script.write_text(CLUSTER)
    for attempts_left in (2, 1, 0):
        with subprocess.Popen(
            [sys.executable, str(script)],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as cluster:
            assert cluster.stdout is not None
            if found := cluster.stdout.readline().strip():
                yield found
                return
        # Ray gives itself 30 seconds to start, whatever else the machine is doing.
        assert attempts_left, "no Ray could be started"
