"""POST /v1/audio/speech: a text in a stored voice, or in the voice of a recording that comes along."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from backend.audio.formats import FORMAT_TABLE, AudioFormat
from backend.errors import EncoreError
from backend.serving.api.dependencies import ApiContext, ContextDep, client_of
from backend.serving.api.errors import ApiError, outcome_of, status_of
from backend.serving.api.events import SSE_MEDIA_TYPE
from backend.serving.api.openapi import error_responses, inlined_schema
from backend.serving.api.request_parsing import FORM, HOW_TO_CONSENT, JSON, media_type_of, read_form, read_json
from backend.serving.api.schemas import OneOffSpeechRequest, SpeechFields, SpeechRequest, VoiceReference
from backend.serving.api.streaming import StreamedSpeech, provenance_headers, while_connected
from backend.serving.api.threads import slowly
from backend.serving.requests import AudioChunk, Reference, SpeechFailure, SpeechSummary, SynthesisRequest
from backend.voices.consent import Consent, bound_to_recording
from backend.voices.reference import write_reference
from backend.voices.voice import Voice
from training.model.owner import temporary_folder

router = APIRouter(tags=["speech"])

RECORDING_SENT_ALONG = "A recording sent with the request"

_SOUND: dict[str, Any] = {
    "description": "The speech, or with stream_format sse its events.",
    "content": {
        **{entry.media_type: {"schema": {"type": "string", "format": "binary"}} for entry in FORMAT_TABLE.values()},
        SSE_MEDIA_TYPE: {"schema": {"type": "string"}},
    },
}


@router.post(
    "/v1/audio/speech",
    summary="Speak a text",
    response_class=Response,
    responses={200: _SOUND, **error_responses(400, 401, 403, 404, 413, 415, 429, 500, 503, 504)},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                JSON: {"schema": inlined_schema(SpeechRequest)},
                FORM: {"schema": inlined_schema(OneOffSpeechRequest, files={"ref_audio": "A recording of the voice."})},
            },
        }
    },
)
async def create_speech(request: Request, context: ContextDep) -> Response:
    """Speak a text in the requested voice; audio is streamed while it is generated."""
    if media_type_of(request) == FORM:
        async with read_form(request, OneOffSpeechRequest, "ref_audio") as (form, recording):
            order = await _order(request, context, form, await _voice_of_form(context, form, recording))
    else:
        spoken = await read_json(request, SpeechRequest)
        name = spoken.voice.id if isinstance(spoken.voice, VoiceReference) else spoken.voice
        order = await _order(request, context, spoken, await context.find_voice(name))
        form = None
    fields: SpeechFields = form or spoken
    if order.is_streamed:
        return StreamedSpeech(
            context.speak(order),
            audio_format=order.audio_format,
            is_sse=fields.stream_format == "sse",
            metrics=context.metrics,
        )
    return whole_response(*await while_connected(request, take_whole(context, order)), order.audio_format)


async def take_whole(context: ApiContext, order: SynthesisRequest) -> tuple[bytes, SpeechSummary]:
    """Wait for the complete speech, and count it. Raises EncoreError when it fails."""
    context.metrics.begin()
    outcome, content = "cancelled", bytearray()
    summary: SpeechSummary | None = None
    try:
        async with aclosing(context.speak(order)) as events:
            async for event in events:
                match event:
                    case AudioChunk():
                        content += event.content
                    case SpeechSummary():
                        summary = event
                    case SpeechFailure():
                        raise event.error
        assert summary is not None
        outcome = "done"
        return bytes(content), summary
    except EncoreError as error:
        outcome = outcome_of(error)
        context.metrics.refuse(status_of(error))
        raise
    finally:
        context.metrics.end(outcome, summary)


def whole_response(content: bytes, summary: SpeechSummary, audio_format: AudioFormat) -> Response:
    """A finished speech and its metadata."""
    facts = summary.facts
    headers = {
        "x-encore-seconds": f"{facts.seconds:.3f}",
        "x-encore-finish-reason": facts.finish_reason,
        "x-encore-seeds": ",".join(map(str, facts.seeds)),
        "x-encore-real-time-factor": f"{facts.real_time_factor:.3f}",
        "cache-control": "no-store",
    }
    if summary.take_problem:
        headers["x-encore-take-problem"] = summary.take_problem
    response = Response(content, media_type=FORMAT_TABLE[audio_format].media_type, headers=headers)
    response.raw_headers += provenance_headers(facts.statement)
    return response


async def _order(
    request: Request, context: ApiContext, fields: SpeechFields, voice: Voice | Reference
) -> SynthesisRequest:
    context.check_model(fields.model)
    is_streamable = FORMAT_TABLE[fields.response_format].is_streamable
    if fields.stream_format == "sse" and not is_streamable:
        raise ApiError(
            400,
            f"{fields.response_format} is finished only at its end, so it cannot be sent in events. Choose another "
            "response_format, or stream_format audio, which sends it whole.",
            param="response_format",
            code="unsupported_value",
        )
    told = context.told_how(voice, fields.instructions)
    own_language = voice.language if isinstance(voice, Voice) else "auto"
    return SynthesisRequest(
        client=client_of(request),
        voice=voice,
        text=context.check_input(fields.input),
        language=fields.language or own_language,
        seed=fields.seed,
        instruction=told.instruction,
        style=told.style,
        audio_format=fields.response_format,
        speed=fields.speed,
        is_streamed=is_streamable and (fields.stream or fields.stream_format == "sse"),
        sampling=voice.sampling if isinstance(voice, Voice) else None,
        names_speaker=fields.name_speaker,
        names_text=fields.name_text,
    )


async def _voice_of_form(context: ApiContext, form: OneOffSpeechRequest, recording: Path | None) -> Voice | Reference:
    if recording is None:
        if form.voice is None:
            raise ApiError(400, "Name a voice, or send a recording as ref_audio.", param="voice", code="missing_voice")
        return await context.find_voice(form.voice)
    if form.voice is not None:
        raise ApiError(400, "Send either voice or ref_audio, not both.", param="voice", code="invalid_value")
    consent = Consent.from_form(form.consent, form.consent_by, how=HOW_TO_CONSENT)
    agreed = await slowly(bound_to_recording, consent, recording)
    return Reference(
        name=RECORDING_SENT_ALONG,
        recording=await slowly(_canonical, recording),
        transcript=(form.ref_text or "").strip() or None,
        consent=agreed,
    )


def _canonical(recording: Path) -> bytes:
    """The recording, decoded in a confined process and written as a new WAV file. Raises RecordingError."""
    with temporary_folder() as folder:
        destination = Path(folder) / "reference.wav"
        write_reference(destination, [recording])
        return destination.read_bytes()
