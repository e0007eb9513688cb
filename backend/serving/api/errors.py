"""Errors as OpenAI's clients expect them: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from backend.audio.errors import AudioFormatError
from backend.errors import EncoreError, PromptError, RecordingError, RecordingTooLarge
from backend.provenance.errors import RecordingSynthetic
from backend.serving.errors import EngineBusy, EngineClosed, ServingError
from backend.store.errors import TrashBusy, TrashNameTaken, TrashNotFound
from backend.takes.errors import TakeNotFound, TakeTooShort
from backend.tenants.errors import QuotaExceeded
from backend.voices.errors import (
    ConsentInvalid,
    ConsentMissing,
    VoiceError,
    VoiceFileInvalid,
    VoiceLimitReached,
    VoiceNameInvalid,
    VoiceNameTaken,
    VoiceNotFound,
    VoiceStyleUnknown,
)
from backend.web.redaction import public_message
from training.errors import StorageError

_logger = logging.getLogger(__name__)


class ErrorDetail(BaseModel):
    """What went wrong."""

    model_config = ConfigDict(extra="forbid")

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(BaseModel):
    """The body of every error response."""

    model_config = ConfigDict(extra="forbid")

    error: ErrorDetail


class ApiError(EncoreError):
    """A request is refused before speech is generated."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        self.status, self.param, self.code = status, param, code
        super().__init__(message)


class RequestTimedOut(ServingError):
    """No audio arrived within the time limit."""


class _Kind(NamedTuple):
    status: int
    code: str
    param: str | None = None


# The first that fits counts, so the special comes before the general.
_KINDS: tuple[tuple[type[EncoreError], _Kind], ...] = (
    (ConsentMissing, _Kind(400, "consent_required", "consent")),
    (ConsentInvalid, _Kind(403, "consent_refused", "consent")),
    (VoiceStyleUnknown, _Kind(400, "unknown_style", "instructions")),
    (VoiceNotFound, _Kind(404, "voice_not_found", "voice")),
    (TakeNotFound, _Kind(404, "take_not_found")),
    (TakeTooShort, _Kind(500, "take_too_short")),
    (VoiceLimitReached, _Kind(403, "voice_limit_reached")),
    (VoiceNameTaken, _Kind(409, "voice_exists", "name")),
    (VoiceNameInvalid, _Kind(400, "invalid_name", "name")),
    (VoiceFileInvalid, _Kind(400, "invalid_file")),
    (VoiceError, _Kind(400, "invalid_voice")),
    (RecordingSynthetic, _Kind(409, "made_by_encore", "accept_synthetic")),
    (RecordingTooLarge, _Kind(413, "audio_too_large")),
    (RecordingError, _Kind(400, "invalid_audio")),
    (AudioFormatError, _Kind(400, "unsupported_format", "response_format")),
    (PromptError, _Kind(400, "invalid_prompt", "input")),
    (EngineBusy, _Kind(429, "rate_limit_exceeded")),
    (QuotaExceeded, _Kind(429, "rate_limit_exceeded")),
    (RequestTimedOut, _Kind(504, "timeout")),
    (EngineClosed, _Kind(503, "unavailable")),
    (ServingError, _Kind(503, "unavailable")),
    (StorageError, _Kind(503, "unavailable")),
    (TrashNotFound, _Kind(404, "not_in_trash")),
    (TrashNameTaken, _Kind(409, "name_taken")),
    (TrashBusy, _Kind(409, "in_use")),
)

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def status_of(error: EncoreError) -> int:
    """The HTTP status for an error."""
    return error.status if isinstance(error, ApiError) else _kind_of(error).status


def outcome_of(error: EncoreError) -> Literal["refused", "failed"]:
    """How a speech that ended with it is counted."""
    return "refused" if status_of(error) == 429 else "failed"


def body_of(error: EncoreError) -> dict[str, Any]:
    """An error as JSON."""
    if isinstance(error, ApiError):
        kind = _Kind(error.status, error.code or "invalid_request", error.param)
    else:
        kind = _kind_of(error)
    detail = ErrorDetail(message=public_message(error), type=_type_of(kind.status), param=kind.param, code=kind.code)
    return ErrorBody(error=detail).model_dump()


def error_response(error: EncoreError) -> JSONResponse:
    """The whole answer."""
    headers: Mapping[str, str] = {}
    if isinstance(error, EngineBusy | QuotaExceeded):
        headers = {"Retry-After": str(max(1, math.ceil(error.retry_after_seconds)))}
    elif status_of(error) == 401:
        headers = {"WWW-Authenticate": "Bearer"}
    return JSONResponse(body_of(error), status_of(error), headers=dict(headers))


def from_validation(error: ValidationError | RequestValidationError) -> ApiError:
    """Say in one sentence which field is wrong."""
    first = error.errors()[0]
    location = [str(part) for part in first["loc"] if part not in ("body", "query", "path")]
    field = ".".join(location) or None
    if first["type"] == "json_invalid":
        return ApiError(400, "The body is not valid JSON. Send one JSON object.", code="invalid_json")
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"{field}: there is no such field.", param=field, code="invalid_value")
    return ApiError(400, _sentence(field or "The body", first), param=field, code="invalid_value")


def _sentence(field: str, error: Mapping[str, Any]) -> str:
    """Pydantic's message; where that speaks of strings, in the words of the caller."""
    limits = error.get("ctx", {})
    if error["type"] == "missing":
        return f"{field} is missing."
    if error["type"] == "string_too_short" and limits["min_length"] == 1:
        return f"{field} is empty."
    if error["type"] == "string_too_long":
        return f"{field} is too long: it may have {limits['max_length']} characters."
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{field}: {message}."


def install_error_handlers(app: FastAPI) -> None:
    """Return every error in the same shape."""

    async def on_known(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, EncoreError)
        return error_response(error)

    async def on_invalid(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError | ValidationError)
        return error_response(from_validation(error))

    async def on_http(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        response = error_response(ApiError(error.status_code, f"{error.detail}.", code="invalid_request"))
        response.headers.update(error.headers or {})
        return response

    async def on_gone(_: Request, error: Exception) -> JSONResponse:
        # Nobody reads it; without an answer the server would call it a fault of its own.
        return error_response(ApiError(400, "The connection was closed before the whole request had arrived."))

    async def on_fault(_: Request, error: Exception) -> JSONResponse:
        _logger.error("a request failed", exc_info=error)
        return error_response(ApiError(500, "An internal error. See the log for details.", code="internal_error"))

    app.add_exception_handler(EncoreError, on_known)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(ClientDisconnect, on_gone)
    app.add_exception_handler(Exception, on_fault)


def _kind_of(error: EncoreError) -> _Kind:
    for kind, facts in _KINDS:
        if isinstance(error, kind):
            return facts
    return _Kind(500, "internal_error")


def _type_of(status: int) -> str:
    return _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
