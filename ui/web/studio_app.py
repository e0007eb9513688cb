"""Gradio's server with Encore's own checks in front of all of its parts."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import gradio as gr
from gradio.routes import App, ORJSONResponse
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from backend.settings import Settings
from backend.web.host_guard import HostGuard, Refusal
from ui.web.login_door import LoginDoor
from ui.web.login_guard import LoginGuard
from ui.web.queue_share import QueueShare
from ui.web.sessions import Sessions
from ui.web.uploads import UploadLimit, Uploads


class StudioApp(App):
    """What answers to the page's requests.

    Middleware that is given to Gradio comes after its own, which answers requests of other sites by itself, and
    stumbles over malformed headers.

    Attributes:
        hosts: names under which the page is reached.
        uploads: what was uploaded.
    """

    def __init__(self, page: gr.Blocks, settings: Settings) -> None:
        super().__init__(default_response_class=ORJSONResponse)
        self.hosts = settings.served_names()
        self._page = page
        self.state_holder = Sessions()  # type: ignore[no-untyped-call]
        self.add_exception_handler(Exception, _say_fault)
        self.uploads = Uploads(page, Path(self.uploaded_file_dir), round(settings.max_upload_gb * 1e9))

    def build_middleware_stack(self) -> ASGIApp:
        """Gradio's layers, and Encore's around them; the last one here is asked first."""
        door = LoginDoor(super().build_middleware_stack())
        return HostGuard(
            LoginGuard(UploadLimit(QueueShare(door, self._page), self.uploads)), hosts=self.hosts, answer=_refuse
        )

    def build_proxy_request(self, url_path: str) -> NoReturn:
        """Refuse to fetch from other sites, which Gradio does for pages that show those sites' apps."""
        raise PermissionError("This page fetches nothing from other sites.")


def _say_fault(request: Request, error: Exception) -> JSONResponse:
    """What Gradio did not foresee; the server logs it."""
    return JSONResponse({"detail": "An internal error. See the log for details."}, 500)


def _refuse(refusal: Refusal) -> JSONResponse:
    # The connection is not kept: what is sent along is not read.
    return JSONResponse({"detail": refusal.message}, refusal.status, headers={"Connection": "close"})
