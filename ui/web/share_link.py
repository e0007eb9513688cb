"""A link under which the page is reached from anywhere: Gradio's tunnel, when a person asks for it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

import gradio as gr
import httpx
from gradio import networking, tunneling
from gradio.exceptions import ChecksumMismatchError, ShareCertificateWriteError

from backend.errors import SettingsError

GOES_ON = "The page goes on working on this machine."


class ShareUnavailable(SettingsError):
    """The link could not be made; the message says why."""


def open_link(page: gr.Blocks) -> str:
    """Make the link to a page that is being served; returns its address.

    Raises:
        ShareUnavailable: there is no network, or the program that makes the tunnel is not available.
    """
    try:
        tunneling.Tunnel.download_binary()  # type: ignore[no-untyped-call]
        _require_published(Path(tunneling.BINARY_PATH))
        address = networking.setup_tunnel(
            local_host=page.server_name,
            local_port=page.server_port,
            share_token=page.share_token,
            share_server_address=None,
            share_server_tls_certificate=None,
        )
    except (ChecksumMismatchError, ShareCertificateWriteError) as error:
        raise ShareUnavailable(f"There is no share link: {error}. {GOES_ON}") from error
    except (OSError, RuntimeError, ValueError, httpx.HTTPError) as error:
        raise ShareUnavailable(
            "There is no share link: Gradio's share server, or the program frpc that reaches it, is not available from "
            f"this machine. Check the network and start again with --share. {GOES_ON}"
        ) from error
    return address.replace("http://", "https://", 1)


def announce_link(page: gr.Blocks, opened: Callable[[str], object] = str) -> threading.Thread:
    """Make the link without keeping the page waiting for it, and print it, or why there is none.

    Args:
        page: that is being served.
        opened: told the link before anybody else is.
    """

    def announce() -> None:
        """Wait for the link in a thread of its own."""
        try:
            link = open_link(page)
            opened(link)
            print(f"Shared at {link} with everyone who has the link and the password.", flush=True)
        except ShareUnavailable as error:
            print(f"encore: {error}", flush=True)

    thread = threading.Thread(target=announce, daemon=True, name="share-link")
    thread.start()
    return thread


def _require_published(program: Path) -> None:
    """Check the tunnel program, which Gradio does only after downloading it and then leaves a wrong one in place.

    Raises ShareUnavailable.
    """
    wanted = tunneling.CHECKSUMS.get(tunneling.BINARY_URL)
    if wanted is None:
        return
    with program.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != wanted:
        program.unlink()
        raise ShareUnavailable(
            f"There is no share link: {program.name} was not the published program, and was removed. Start again with "
            f"--share to fetch it anew. {GOES_ON}"
        )
