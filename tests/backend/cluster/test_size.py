"""What a cluster says of its size; one that runs is asked in `tests/test_pipeline.py`."""

from __future__ import annotations

import socket

import pytest

from backend.cluster.errors import ClusterError
from backend.cluster.size import ask_cluster


def test_an_unreachable_cluster_is_reported_at_once():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # taken, and not listened to
        with pytest.raises(ClusterError, match="No Ray cluster answers at"):
            ask_cluster(f"127.0.0.1:{silent.getsockname()[1]}")


def test_another_server_at_the_address_is_not_taken_for_a_cluster():
    with socket.create_server(("127.0.0.1", 0)) as stranger, pytest.raises(ClusterError, match="did not answer within"):
        ask_cluster(f"127.0.0.1:{stranger.getsockname()[1]}", max_seconds=0.5)
