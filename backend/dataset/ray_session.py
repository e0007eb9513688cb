"""A Ray to work on: the one this process has, the cluster that `RAY_ADDRESS` names, or one on this machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray
import ray.data

from backend.dataset.errors import ClusterUnavailable

_PROJECT_FOLDER = Path(__file__).resolve().parents[2]


@contextmanager
def ray_session() -> Iterator[None]:
    """Be connected to Ray for a block; what this process connected to before stays connected.

    Raises:
        ClusterUnavailable: it cannot be reached, or does not start.
    """
    _be_quiet()
    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS") or "local"
    try:
        ray.init(
            address=address,
            namespace="encore-dataset",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.WARNING,
            # Workers import this project from where it lies, whatever folder they were started in.
            runtime_env={"env_vars": {"PYTHONPATH": str(_PROJECT_FOLDER)}},
        )
    except Exception as error:  # Ray raises a bare Exception when a node does not come up in time
        ray.shutdown()
        remedy = "Try again when the computer is less busy, or build with --workers 0, which needs no Ray."
        raise ClusterUnavailable(f"Ray ({address}) could not be reached or started. {remedy}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _be_quiet() -> None:
    """Progress goes to the database; bars would tear up whatever else is on the terminal."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.WARNING)
