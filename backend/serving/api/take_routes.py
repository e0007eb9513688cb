"""/v1/audio/takes: what the API has spoken, including before the last start.

Takes made on the page are in lists of their own and are not shown here.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from backend.audio.formats import FORMAT_TABLE
from backend.serving.api.dependencies import ApiContext, ContextDep
from backend.serving.api.openapi import error_responses
from backend.serving.api.schemas import Deleted, TakeList, TakeView
from backend.serving.api.streaming import provenance_headers
from backend.serving.api.threads import slowly
from backend.takes.errors import TakeNotFound
from backend.takes.take import Take

router = APIRouter(prefix="/v1/audio/takes", tags=["takes"])

API_LIST = ""

_SOUND = {
    "description": "The file as it was generated; raw samples have a WAV header.",
    "content": {
        entry.media_type: {"schema": {"type": "string", "format": "binary"}}
        for name, entry in FORMAT_TABLE.items()
        if name != "pcm"
    },
}


@router.get("", summary="List the takes", response_model=TakeList, responses=error_responses(401, 403, 500))
async def list_takes(context: ContextDep) -> TakeList:
    """The stored takes, newest first."""
    takes = await asyncio.to_thread(context.takes.list, API_LIST) if context.takes is not None else ()
    return TakeList(data=[TakeView.of(take) for take in takes])


@router.get(
    "/{take_id}", summary="Look at a take", response_model=TakeView, responses=error_responses(401, 403, 404, 500)
)
async def get_take(take_id: str, context: ContextDep) -> TakeView:
    """How one was made."""
    return TakeView.of(await _find(context, take_id))


@router.get(
    "/{take_id}/content",
    summary="Hear a take",
    response_class=Response,
    responses={200: _SOUND, **error_responses(401, 403, 404, 500)},
)
async def get_content(take_id: str, context: ContextDep) -> Response:
    """Its file."""
    take = await _find(context, take_id)
    assert context.takes is not None
    until_sent = ExitStack()
    path = await slowly(until_sent.enter_context, context.takes.sound_of(take))
    response = _SoundResponse(path, until_sent, media_type=FORMAT_TABLE[take.audio_format].media_type)
    response.raw_headers += provenance_headers(take.statement)
    return response


class _SoundResponse(FileResponse):
    """A file that may be here only until it is sent."""

    def __init__(self, path: Path, until_sent: ExitStack, *, media_type: str) -> None:
        super().__init__(path, media_type=media_type)
        self._until_sent = until_sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, in whole or a range."""
        with self._until_sent:
            await super().__call__(scope, receive, send)


@router.delete(
    "/{take_id}", summary="Delete a take", response_model=Deleted, responses=error_responses(400, 401, 403, 404, 500)
)
async def delete_take(take_id: str, context: ContextDep, for_good: bool = False) -> Deleted:
    """Delete one with its file; for 24 hours it can be restored. With `for_good` nothing is left."""
    take = await _find(context, take_id)
    assert context.takes is not None
    deleted = await asyncio.to_thread(context.takes.delete, take.id)
    if for_good:
        await asyncio.to_thread(context.takes.trash.purge, deleted.id, missing_ok=True)
    return Deleted(id=take.id, object="take")


@router.post(
    "/{take_id}/restore",
    summary="Restore a take",
    response_model=TakeView,
    responses=error_responses(401, 403, 404, 409, 500),
)
async def restore_take(take_id: str, context: ContextDep) -> TakeView:
    """Undo a deletion within 24 hours."""
    if context.takes is None:
        raise _no_takes()
    trash = context.takes.trash
    deleted = await asyncio.to_thread(trash.find, "take", take_id, API_LIST)
    await asyncio.to_thread(trash.restore, deleted.id)
    return TakeView.of(await _find(context, take_id))


async def _find(context: ApiContext, take_id: str) -> Take:
    if context.takes is None:
        raise _no_takes()
    take = await asyncio.to_thread(context.takes.get, take_id)
    if take.owner != API_LIST:
        raise TakeNotFound(f"There is no take {take_id[:40]!r} of the API. List those there are.")
    return take


def _no_takes() -> TakeNotFound:
    return TakeNotFound("No takes are kept here. Start without ENCORE_MAX_TAKES=0 to keep them.")
