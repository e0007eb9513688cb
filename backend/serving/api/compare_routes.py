"""POST /v1/compare: one text with one seed in several voices at the same time."""

from __future__ import annotations

import asyncio
import base64

from fastapi import APIRouter, Request

from backend.serving.api.dependencies import ApiContext, ContextDep, client_of
from backend.serving.api.openapi import error_responses, inlined_schema
from backend.serving.api.request_parsing import JSON, read_json
from backend.serving.api.schemas import ComparedTake, CompareRequest, Comparison
from backend.serving.api.speech_routes import take_whole
from backend.serving.api.streaming import while_connected
from backend.serving.requests import SpeechSummary, SynthesisRequest
from training.model.seed import draw_seed

router = APIRouter(tags=["speech"])


@router.post(
    "/v1/compare",
    summary="Compare voices",
    response_model=Comparison,
    responses=error_responses(400, 401, 403, 404, 413, 415, 429, 500, 503, 504),
    openapi_extra={"requestBody": {"required": True, "content": {JSON: {"schema": inlined_schema(CompareRequest)}}}},
)
async def compare(request: Request, context: ContextDep) -> Comparison:
    """Speak one text in each of the voices, in parallel; if one of them fails, the request fails."""
    asked = await read_json(request, CompareRequest)
    context.check_model(asked.model)
    context.check_input(asked.input)
    voices = [await context.find_voice(name) for name in asked.voices]
    await context.allowance.require_characters(len(asked.input) * len(voices))
    seed = draw_seed() if asked.seed is None else asked.seed
    orders = [
        SynthesisRequest(
            client=client_of(request),
            voice=voice,
            text=asked.input,
            language=asked.language or voice.language,
            seed=seed,
            audio_format=asked.response_format,
            speed=asked.speed,
            is_streamed=False,
            sampling=voice.sampling,
        )
        for voice in voices
    ]
    speeches = await while_connected(request, _take_all(context, orders))
    takes = []
    for voice, (content, summary) in zip(voices, speeches, strict=True):
        facts = summary.facts
        takes.append(
            ComparedTake(
                voice=voice.name,
                voice_id=voice.id,
                audio=base64.b64encode(content).decode(),
                seconds=facts.seconds,
                seconds_to_first_audio=facts.seconds_to_first_audio,
                real_time_factor=facts.real_time_factor,
                finish_reason=facts.finish_reason,
            )
        )
    return Comparison(input=asked.input, seed=seed, response_format=asked.response_format, takes=takes)


async def _take_all(context: ApiContext, orders: list[SynthesisRequest]) -> list[tuple[bytes, SpeechSummary]]:
    """Run all of them in parallel; the first failure cancels the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(take_whole(context, order)) for order in orders]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
