"""The OpenAPI document, and what keeps it accurate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from backend.serving.api.errors import ErrorBody

_DESCRIPTIONS = {
    400: "The request cannot be understood or carried out; the message says why.",
    401: "No or no valid API key.",
    403: "Not allowed from this address, with this key or without a valid consent, or too many voices.",
    404: "The voice, model or take does not exist.",
    409: "The name is taken.",
    413: "Too large.",
    415: "The content type of the body is not supported.",
    429: "Too many requests at once, or the tenant's limit is reached; Retry-After says when to try again.",
    500: "A fault in Encore.",
    503: "Nobody can speak now.",
    504: "No audio was generated in time.",
}


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Declare a route's errors; whatever needs a key may also be asked for too often."""
    declared = sorted({*statuses, *((429,) if 401 in statuses else ())})
    return {status: {"model": ErrorBody, "description": _DESCRIPTIONS[status]} for status in declared}


def inlined_schema(message: type[BaseModel], files: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A body's schema without references, for routes that read their body themselves; `files` are binary fields."""
    schema = message.model_json_schema()
    definitions = schema.pop("$defs", {})
    inlined: dict[str, Any] = _inline(schema, definitions)
    for name, description in (files or {}).items():
        inlined["properties"][name] = {"type": "string", "format": "binary", "description": description}
    return inlined


def install_openapi(app: FastAPI, max_characters: int) -> None:
    """Serve the document with this server's maximum text length, and without the 422 that is never sent."""

    def build() -> dict[str, Any]:
        """The document, made once."""
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, routes=app.routes)
            for operations in document["paths"].values():
                for operation in operations.values():
                    # FastAPI adds it by itself.
                    operation["responses"].pop("422", None)
                    for content in operation.get("requestBody", {}).get("content", {}).values():
                        if "input" in content["schema"].get("properties", {}):
                            content["schema"]["properties"]["input"]["maxLength"] = max_characters
            for name in ("HTTPValidationError", "ValidationError"):
                document["components"]["schemas"].pop(name, None)
            document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{}, {"key": []}]
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = build  # type: ignore[method-assign]


def _inline(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, dict):
        if "$ref" in node:
            return _inline(definitions[node["$ref"].rpartition("/")[2]], definitions)
        return {name: _inline(value, definitions) for name, value in node.items()}
    if isinstance(node, list):
        return [_inline(value, definitions) for value in node]
    return node
