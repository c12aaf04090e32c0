"""The OpenAPI description of the API, from the types of the operations."""

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from orchestrator.api.addresses import operation_path, reading_addresses
from orchestrator.app.operation import Operation, Transfer
from orchestrator.app.remote.operation_types import types_of

_REFERENCE = "#/components/schemas/{model}"
_FILE = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_TEXT = {"type": "string"}


def describe_api(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the description as OpenAPI 3.1."""
    schemas: dict[str, Any] = {}
    known = tuple(operations)
    paths: dict[str, Any] = {}
    for path, each in reading_addresses(known).items():
        paths.setdefault(path, {})["get"] = _describe_reading(path, each, schemas)
    for each in known:
        paths.setdefault(operation_path(each), {})["post"] = _describe(each, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Farmhand", "version": version("farmhand")},
        "security": [{"token": []}],
        "paths": _plain_paths() | paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(called: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    types = types_of(called.function)
    properties = {
        name: _schema(adapter, "validation", schemas) for name, adapter in types.arguments.items()
    }
    if types.fetch is not None:
        properties["files"] = {"type": "object", "additionalProperties": _TEXT}
    arguments = {"type": "object", "properties": properties, "required": sorted(types.required)}
    described = _described(called, schemas) | {
        "operationId": called.name,
        "requestBody": {"content": {"application/json": {"schema": arguments}}},
    }
    if types.transfer and types.transfer[1] is Transfer.UPLOAD:
        described["requestBody"] = {"content": _FILE}
        content = {"application/json": {"schema": arguments}}
        described["parameters"] = [{"name": "arguments", "in": "query", "content": content}]
    return described


def _describe_reading(path: str, called: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    types = types_of(called.function)
    parameters = [
        {
            "name": name,
            "in": "path" if f"{{{name}}}" in path else "query",
            "required": name in types.required,
            "schema": _schema(adapter, "validation", schemas),
        }
        for name, adapter in types.arguments.items()
    ]
    return _described(called, schemas) | {"parameters": parameters}


def _described(called: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    """Describe what an operation does and returns, however it is called."""
    types = types_of(called.function)
    result = {"application/json": {"schema": _schema(types.result, "serialization", schemas)}}
    sends_file = types.transfer is not None and types.transfer[1] is Transfer.DOWNLOAD
    return {
        "summary": (called.function.__doc__ or "").strip().splitlines()[0],
        "description": f"Needs the role {called.role}.",
        "responses": {
            "200": {"description": "the result", "content": _FILE if sends_file else result},
            "default": {"description": "{error: {kind, text}}"},
        },
    }


def _schema(
    adapter: TypeAdapter[Any], mode: JsonSchemaMode, schemas: dict[str, Any]
) -> dict[str, Any]:
    schema = adapter.json_schema(mode=mode, ref_template=_REFERENCE)
    schemas |= schema.pop("$defs", {})
    return schema


def _plain_paths() -> dict[str, Any]:
    parts = [
        {"name": name, "in": "path", "required": True, "schema": _TEXT}
        for name in ("sweep", "table", "form")
    ]
    optional = {"in": "query", "schema": _TEXT}
    table = {
        "summary": "Send a table of a sweep: figures, ranking, samples, readings, ops, outcomes.",
        "parameters": [*parts, {"name": "include_invalid", **optional}],
        "responses": {"200": {"description": "csv, jsonl or parquet", "content": _FILE}},
    }
    events = {
        "summary": "Stream the events of the lab, or of one sweep.",
        "parameters": [{"name": "sweep", **optional}],
        "responses": {"200": {"description": "events", "content": {"text/event-stream": {}}}},
    }
    return {"/v1/sweeps/{sweep}/{table}.{form}": {"get": table}, "/v1/events": {"get": events}}
