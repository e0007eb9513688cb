"""Where a build is to run is found out before Ray is asked, which tries for minutes."""

from __future__ import annotations

import socket

import pytest

from backend.dataset.errors import ClusterUnavailable

# Ray trips over its own old settings while it is imported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")


@pytest.mark.parametrize("form", ["127.0.0.1:{port}", "ray://127.0.0.1:{port}", "127.0.0.1:99999999999"])
def test_an_address_at_which_nobody_answers_is_said_at_once(form: str, monkeypatch: pytest.MonkeyPatch):
    from backend.cluster.session import ray_session  # noqa: PLC0415 - imports Ray, see above

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # taken, so that nobody else listens there, and not listened to
        address = form.format(port=silent.getsockname()[1])
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(ClusterUnavailable, match="No Ray answers at"), ray_session():
            pass
