"""The process that builds a dataset: `python -m backend.dataset.build.build_process JOB.json HOME LOCK_DESCRIPTOR`.

It continues when the app that started it is closed, and reports its progress through the database.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from backend.dataset.build.build import run_build
from backend.dataset.clips.build_job import BuildJob
from backend.errors import EncoreError
from backend.store.home import Home


def main(job_file: str, home: str, lock_descriptor: str) -> int:
    """Build, while holding the lock that was handed over."""
    # The lock must end with this process, and not live on in one that it starts.
    os.set_inheritable(int(lock_descriptor), False)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    job = BuildJob.model_validate_json(Path(job_file).read_bytes())
    try:
        run_build(job, Home(Path(home)), is_begun=True)
    except EncoreError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
