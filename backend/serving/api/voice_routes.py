"""/v1/audio/voices: the stored voices, and cloning more."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request

from backend.serving.api.dependencies import ContextDep
from backend.serving.api.errors import ApiError
from backend.serving.api.openapi import error_responses, inlined_schema
from backend.serving.api.request_parsing import FORM, HOW_TO_CONSENT, read_form
from backend.serving.api.schemas import Deleted, VoiceList, VoiceRequest, VoiceView
from backend.serving.api.threads import slowly
from backend.voices.consent import Consent

router = APIRouter(prefix="/v1/audio/voices", tags=["voices"])


@router.get("", summary="List the voices", response_model=VoiceList, responses=error_responses(401, 403, 500))
async def list_voices(context: ContextDep) -> VoiceList:
    """All stored voices, the oldest first."""
    voices = await asyncio.to_thread(context.voices.list)
    return VoiceList(data=[VoiceView.of(voice) for voice in voices], voices=[voice.name for voice in voices])


@router.post(
    "",
    summary="Clone a voice",
    status_code=201,
    response_model=VoiceView,
    responses=error_responses(400, 401, 403, 409, 413, 415, 500),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                FORM: {"schema": inlined_schema(VoiceRequest, files={"audio_sample": "A recording of the voice."})}
            },
        }
    },
)
async def create_voice(request: Request, context: ContextDep) -> VoiceView:
    """Make a voice from a recording; it can speak at once."""
    async with read_form(request, VoiceRequest, "audio_sample") as (fields, recording):
        consent = Consent.from_form(fields.consent, fields.consent_by, how=HOW_TO_CONSENT)
        if recording is None:
            raise ApiError(400, "Send the recording as audio_sample.", param="audio_sample", code="missing_audio")
        voice = await slowly(
            context.voices.create_zero_shot,
            fields.name,
            recording,
            consent=consent,
            model=context.model_name,
            transcript=fields.ref_text,
            language=fields.language,
            provenance={"made_by": "api"},
            accept_synthetic=fields.accept_synthetic,
        )
    return VoiceView.of(voice)


@router.get(
    "/{voice_id}",
    summary="Look at a voice",
    response_model=VoiceView,
    responses=error_responses(401, 403, 404, 500),
)
async def get_voice(voice_id: str, context: ContextDep) -> VoiceView:
    """Look up a voice by name or id."""
    return VoiceView.of(await context.find_voice(voice_id))


@router.delete(
    "/{voice_id}",
    summary="Delete a voice",
    response_model=Deleted,
    responses=error_responses(400, 401, 403, 404, 500),
)
async def delete_voice(voice_id: str, context: ContextDep, for_good: bool = False) -> Deleted:
    """Delete a voice, its recording and its consent, by name or id; for 24 hours it can be restored.

    With `for_good` nothing is left.
    """
    voice = await context.find_voice(voice_id)
    deleted = await asyncio.to_thread(context.voices.delete, voice.id)
    if for_good:
        await asyncio.to_thread(context.voices.trash.purge, deleted.id, missing_ok=True)
    await context.service.forget_deleted()
    return Deleted(id=voice.id)


@router.post(
    "/{voice_id}/restore",
    summary="Restore a voice",
    response_model=VoiceView,
    responses=error_responses(401, 403, 404, 409, 500),
)
async def restore_voice(voice_id: str, context: ContextDep) -> VoiceView:
    """Undo a deletion within 24 hours, by name or id, under the name it had."""
    deleted = await asyncio.to_thread(context.voices.trash.find, "voice", voice_id)
    return VoiceView.of(await asyncio.to_thread(context.voices.restore, deleted))
