"""GET /v1/models, /healthz and /metrics: what is served, and its state."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.responses import Response

from backend.serving.api.dependencies import ContextDep
from backend.serving.api.errors import ApiError
from backend.serving.api.metrics import MEDIA_TYPE
from backend.serving.api.openapi import error_responses
from backend.serving.api.schemas import Health, ModelList, ModelView

router = APIRouter(tags=["status"])


@router.get("/v1/models", summary="List the models", response_model=ModelList, responses=error_responses(401, 403, 500))
async def list_models(context: ContextDep) -> ModelList:
    """The model that speaks."""
    return ModelList(data=[ModelView(id=context.model_id, created=int(context.started_at.timestamp()))])


@router.get(
    "/healthz",
    summary="Whether requests can be served",
    response_model=Health,
    responses=error_responses(403, 500, 503),
)
async def health(context: ContextDep) -> Health:
    """200 while the speech engine is available."""
    state = await context.service.state()
    if not state.is_healthy:
        raise ApiError(503, "The speech engine is unavailable. Try again later.", code="unavailable")
    return Health(model=context.model_id, num_replicas=state.num_replicas)


@router.get(
    "/metrics",
    summary="Numbers for Prometheus",
    response_class=Response,
    responses={
        200: {"description": "Text format.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **error_responses(401, 403, 500),
    },
)
async def metrics(context: ContextDep) -> Response:
    """Metrics on requests, speed and refusals, of the whole installation: for its operator alone."""
    if context.tenant:
        raise ApiError(403, "Metrics tell of everybody. Ask with a key of the operator's.", code="operator_only")
    state, counts = await context.service.state(with_engines=True), context.metrics.counts()
    if context.totals is not None:
        counts = await asyncio.to_thread(context.totals.exchange, context.process, counts)
    return Response(context.metrics.render(state, counts), media_type=MEDIA_TYPE)
