"""GET and POST /v1/audio/check: what a recording says of itself, and by what it can be told."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request

from backend.audio.formats import FORMAT_TABLE
from backend.provenance.verdict import NO_MARK, Verdict
from backend.serving.api.dependencies import ApiContext, ContextDep
from backend.serving.api.errors import ApiError
from backend.serving.api.openapi import error_responses, inlined_schema
from backend.serving.api.request_parsing import FORM, read_form
from backend.serving.api.schemas import CheckedTake, CheckInformation, CheckRequest, CheckView
from backend.serving.api.take_routes import API_LIST
from backend.serving.api.threads import slowly

router = APIRouter(prefix="/v1/audio/check", tags=["provenance"])


@router.get(
    "", summary="How sound is marked here", response_model=CheckInformation, responses=error_responses(401, 403, 500)
)
async def get_information(context: ContextDep) -> CheckInformation:
    """What files carry that leave here, and the certificates by which others can tell them."""
    state = await asyncio.to_thread(context.signer.state) if context.signer is not None else None
    return CheckInformation(
        signed_formats=[name for name, entry in FORMAT_TABLE.items() if entry.signed_as],
        signer=state.signer if state is not None else None,
        certificates=state.certificates if state is not None else None,
        problem=state.problem if state is not None else "",
        no_mark_means=NO_MARK,
    )


@router.post(
    "",
    summary="Check a recording",
    response_model=CheckView,
    responses=error_responses(400, 401, 403, 413, 415, 500),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {FORM: {"schema": inlined_schema(CheckRequest, files={"file": "The recording."})}},
        }
    },
)
async def check(request: Request, context: ContextDep) -> CheckView:
    """Say whether a recording was made by Encore, whether it was changed since, and which take of the API it is."""
    async with read_form(request, CheckRequest, "file") as (_, recording):
        if recording is None:
            raise ApiError(400, "Send the recording as file.", param="file", code="missing_audio")
        verdict = await slowly(context.checker.check, recording)
    return CheckView.of(verdict, await asyncio.to_thread(_find_take, context, verdict))


def _find_take(context: ApiContext, verdict: Verdict) -> CheckedTake | None:
    """The take, if it is one of the API's: what people spoke on the page is not told here."""
    take = context.takes.of_verdict(verdict) if context.takes is not None else None
    if take is None or take.owner != API_LIST:
        return None
    return CheckedTake(id=take.id, created_at=int(take.made_at.timestamp()))
