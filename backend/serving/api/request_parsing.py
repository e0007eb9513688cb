"""Bodies of requests: JSON, or a form with a recording, checked into what the routes work with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from backend.serving.api.errors import ApiError, from_validation
from training.model.owner import temporary_folder

JSON, FORM = "application/json", "multipart/form-data"

HOW_TO_CONSENT = "Send consent_by, the name of the person who gives it, and consent, one of"

_MAX_FIELD_BYTES = 64 * 1024
_MAX_FIELDS = 32
_CHUNK_BYTES = 2**20

Message = TypeVar("Message", bound=BaseModel)


def media_type_of(request: Request) -> str:
    """The content type of the body, without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_json(request: Request, kind: type[Message]) -> Message:
    """The body as one JSON object. Raises ApiError with what is wrong with it."""
    if media_type_of(request) != JSON:
        raise ApiError(
            415, f"Send the request as {JSON}, or with a recording as {FORM}.", code="unsupported_media_type"
        )
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        raise from_validation(error) from error


@asynccontextmanager
async def read_form(
    request: Request, kind: type[Message], file_field: str
) -> AsyncIterator[tuple[Message, Path | None]]:
    """The fields of a form and its file, which is deleted when the block ends.

    Raises:
        ApiError: the form cannot be read, or a field is wrong.
    """
    if media_type_of(request) != FORM:
        raise ApiError(415, f"Send the request as {FORM}.", code="unsupported_media_type")
    # Starlette raises HTTPException for malformed forms, which has a handler of its own.
    async with request.form(max_files=1, max_fields=_MAX_FIELDS, max_part_size=_MAX_FIELD_BYTES) as form:
        fields: dict[str, Any] = {}
        file: UploadFile | None = None
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                if name != file_field:
                    raise ApiError(400, f"{name[:60]}: a file is sent as {file_field}.", param=name[:60])
                file = value
            elif name in fields:
                raise ApiError(400, f"{name[:60]}: is there twice.", param=name[:60])
            else:
                fields[name] = value
        try:
            message = kind.model_validate(fields)
        except ValidationError as error:
            raise from_validation(error) from error
        with temporary_folder() as folder:
            yield message, None if file is None else await _store(file, Path(folder))


async def _store(file: UploadFile, folder: Path) -> Path:
    """Store an upload under a name that users recognize and that is safe on any file system."""
    shown = "".join(
        character for character in (file.filename or "")[-60:] if character.isalnum() or character in "-_. "
    )
    path = folder / (shown.strip(". ") or "recording")
    with path.open("xb") as target:
        while chunk := await file.read(_CHUNK_BYTES):
            await run_in_threadpool(target.write, chunk)
    return path
