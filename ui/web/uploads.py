"""Uploads: bounded together, and gone soon where nobody has used them.

Gradio keeps what is uploaded for as long as the page's other files, which is a day, and as much as fits on the disk.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ui.words.words import say, spoken_to

UNUSED_SECONDS = 900.0
"""How long an upload may lie that was given to none of the page's handlers, which mostly happens at once."""

SWEEP_SECONDS = 60.0

MIN_FREE_BYTES = 512 * 2**20
"""What uploads leave on the disk, for takes and the database."""

UPLOAD_PATH = "/gradio_api/upload"


class Uploads:
    """What has been uploaded to a page and is still there."""

    def __init__(self, page: gr.Blocks, folder: Path, max_bytes: int) -> None:
        self._page, self._folder, self.max_bytes = page, folder, max_bytes
        self.num_arriving_bytes = 0

    def num_bytes(self) -> int:
        """Of everything that is held, arriving uploads included."""
        total = self.num_arriving_bytes
        for path in (*self._held(), *self._broken_off()):
            with suppress(OSError):
                total += path.stat().st_size
        return total

    def find_problem(self, num_bytes: int) -> str | None:
        """Why so much more is not taken, in the language of the request; None where it is."""
        megabytes = num_bytes / 1e6
        if shutil.disk_usage(self._folder).free - self.num_arriving_bytes - num_bytes < MIN_FREE_BYTES:
            return say("uploads.no_room", megabytes=f"{megabytes:.0f}")
        if self.num_bytes() + num_bytes > self.max_bytes:
            self.sweep()
        if self.num_bytes() + num_bytes > self.max_bytes:
            return say("uploads.too_many", gigabytes=f"{self.max_bytes / 1e9:g}", megabytes=f"{megabytes:.0f}")
        return None

    def sweep(self) -> None:
        """Remove what nobody has used, and what is left of uploads that broke off."""
        oldest = time.time() - UNUSED_SECONDS
        for path in (*self._unused(), *self._broken_off()):
            with suppress(OSError):
                if path.stat().st_mtime < oldest:
                    path.unlink()
        for path in self._held():
            if not path.exists():
                self._page.upload_file_set.discard(str(path))

    def _held(self) -> list[Path]:
        return [Path(name) for name in tuple(self._page.upload_file_set)]

    def _unused(self) -> list[Path]:
        """Uploads that no handler was given: Gradio notes with each component which files it has brought."""
        uploaded = self._page.upload_file_set
        used = {name for names in tuple(self._page.temp_file_sets) if names is not uploaded for name in tuple(names)}
        return [path for path in self._held() if str(path) not in used]

    def _broken_off(self) -> list[Path]:
        """Where Gradio writes uploads as they arrive."""
        return [path for path in self._folder.glob("tmp*") if path.is_file()]

    @asynccontextmanager
    async def swept(self, app: Any) -> AsyncIterator[None]:
        """Sweep every minute for as long as the server runs: its lifespan."""

        async def sweep_for_ever() -> None:
            while True:
                await asyncio.sleep(SWEEP_SECONDS)
                await asyncio.to_thread(self.sweep)

        task = asyncio.create_task(sweep_for_ever())
        yield
        task.cancel()


class UploadLimit:
    """Refuses an upload for which there is no room, before it is read."""

    def __init__(self, app: ASGIApp, uploads: Uploads) -> None:
        self._app, self._uploads = app, uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is no upload, and uploads for which there is room."""
        if scope["type"] != "http" or scope["path"].rstrip("/") != UPLOAD_PATH or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        headers, uploads = Headers(scope=scope), self._uploads
        length = headers.get("content-length", "")
        with spoken_to(headers.get("accept-language")):
            refusal = _refusal_of(length, uploads)
        if refusal:
            await refusal(scope, receive, send)
            return
        num_bytes = int(length)
        uploads.num_arriving_bytes += num_bytes
        try:
            await self._app(scope, receive, send)
        finally:
            uploads.num_arriving_bytes -= num_bytes


def _refusal_of(length: str, uploads: Uploads) -> JSONResponse | None:
    """What an upload that says to be so long is answered before it is read; None where it may come."""
    if not length.isdecimal():
        return _refuse(411, say("uploads.no_length"))
    if int(length) > uploads.max_bytes:
        return _refuse(413, say("uploads.too_large", gigabytes=f"{uploads.max_bytes / 1e9:g}"))
    if problem := uploads.find_problem(int(length)):
        return _refuse(507, problem)
    return None


def _refuse(status: int, said: str) -> JSONResponse:
    return JSONResponse({"detail": said}, status, headers={"Connection": "close"})
