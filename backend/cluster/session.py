"""A Ray to work on: the one this process has, the cluster that `RAY_ADDRESS` names, or one on this machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import ray
import ray.data

from backend.cluster.address import answers
from backend.cluster.connect import explain_no_ray
from backend.dataset.errors import ClusterUnavailable
from training.model.project import PROJECT_FOLDER


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
    _knock(address)
    try:
        ray.init(
            address=address,
            namespace="encore-dataset",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.WARNING,
            # Workers import this project from where it lies, whatever folder they were started in.
            runtime_env={"env_vars": {"PYTHONPATH": str(PROJECT_FOLDER)}},
        )
    except Exception as error:  # Ray raises a bare Exception when a node does not come up in time
        ray.shutdown()
        remedy = "Try again when the computer is less busy, or build with --workers 0, which needs no Ray."
        if address != "local":
            raise ClusterUnavailable(explain_no_ray(address, error)) from error
        raise ClusterUnavailable(f"Ray could not be started. {remedy}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raises ClusterUnavailable where nothing answers."""
    if not answers(address):
        raise ClusterUnavailable(
            f"No Ray answers at {address}. Start it, correct RAY_ADDRESS, or unset it to build on this machine."
        )


def _be_quiet() -> None:
    """Progress goes to the database; bars would tear up whatever else is on the terminal."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # Its warnings are about missing bars, and about hanging for ever where a busy machine takes a minute to start.
    logging.getLogger("ray.data").setLevel(logging.ERROR)
