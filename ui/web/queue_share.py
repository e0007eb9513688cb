"""The page's queue of events: nobody fills it alone."""

from __future__ import annotations

import gradio as gr
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

QUEUE_PATHS = ("/gradio_api/queue/join", "/gradio_api/call/")


class QueueShare:
    """Refuses an event of an address that has filled its half of the queue."""

    def __init__(self, app: ASGIApp, page: gr.Blocks) -> None:
        self._app, self._page = app, page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on everything else."""
        if (
            scope["type"] == "http"
            and scope["method"] == "POST"
            and scope["path"].startswith(QUEUE_PATHS)
            and self._has_its_half(scope["client"][0] if scope.get("client") else "")
        ):
            said = (
                "Half of the queue is waiting for what was asked from your address. Try again when some of it is done."
            )
            await JSONResponse({"detail": said}, 429, headers={"Retry-After": "5"})(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _has_its_half(self, address: str) -> bool:
        queue = self._page._queue
        if not queue.max_size:
            return False
        waiting = [event.request for line in queue.event_queue_per_concurrency_id.values() for event in line.queue]
        num_own = sum(bool(one and one.client and one.client.host == address) for one in waiting)
        return num_own >= queue.max_size // 2
