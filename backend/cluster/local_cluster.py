"""A Ray of one's own: reached from this machine alone, and only with a token that the user alone can read.

Without this, Ray listens on every address, and the token that it makes is readable for every user of the machine.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import psutil

from backend.cluster.errors import ClusterError

LOOPBACK = "127.0.0.1"
_TOKEN_FILE = "ray_token"


@contextlib.contextmanager
def own_ray(home: Path) -> Iterator[None]:
    """Let a Ray that is started within the block be closed to others; its children inherit what they need for that.

    Args:
        home: whose token it gets.

    Raises:
        ClusterError: the token cannot be stored.
    """
    # Read by Ray where it finds out this machine's address, by which all of its servers decide where to listen. It is
    # meant for other systems, and beside it there is no way to tell `ray.init` so: it replaces a loopback address.
    from ray._private import ray_constants  # noqa: PLC0415 - loads Ray

    variables = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(own_token(home)),
        # It would go before the file; a cluster that is joined is what it was set for.
        "RAY_AUTH_TOKEN": None,
        ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR: "0",
        **dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), _loopback_interface()),
    }
    before = {name: os.environ.get(name) for name in variables}
    is_open = ray_constants.ENABLE_RAY_CLUSTER
    _set_environment(variables)
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = is_open
        _set_environment(before)


def own_token(home: Path) -> Path:
    """The file with the token of this home's Rays, made if there is none; nobody but the user can read it.

    Raises:
        ClusterError: it cannot be stored.
    """
    path = home / _TOKEN_FILE
    try:
        home.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="ascii") as file:
                file.write(secrets.token_hex(32))
            try:
                # Of two processes that start at once, one makes the token of both.
                with contextlib.suppress(FileExistsError):
                    path.hardlink_to(partial)
            finally:
                partial.unlink()
        path.chmod(0o600)
    except OSError as error:
        raise ClusterError(
            f"Ray could not be started: its token cannot be stored in {home} ({error.strerror}). Correct that, and "
            "try again."
        ) from error
    return path


def _set_environment(variables: dict[str, str | None]) -> None:
    """Set or unset variables, and let Ray, which remembers its own, read them again."""
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]  # noqa: PLC0415 - loads Ray

    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def _loopback_interface() -> str:
    """What this machine calls the network of itself; PyTorch's workers would take that of the machine's name."""
    networks = psutil.net_if_addrs().items()
    return next((name for name, addresses in networks if any(each.address == LOOPBACK for each in addresses)), "lo")
