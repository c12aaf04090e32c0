"""The description of the API as a page for people; it has no script."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>API of Farmhand</title><link rel="stylesheet" href="/live_page.css">
<main><h1>API of Farmhand <span class="soft">{version}</span></h1>
<p>Send a token with every request: <code>curl -H "Authorization: Bearer $FARM_TOKEN"
{url}v1/sweeps</code>. Errors are <code>{{"error": {{"kind", "text"}}}}</code>.
The same as data: <code>/openapi.json</code>.</p>
<h2>Read with GET</h2>{short}
<h2>Call with POST</h2><p>The arguments are a JSON object. Operations for viewers answer GET, too,
with the arguments in the address.</p>{operations}
<h2>Types</h2>{types}</main></html>"""


def docs_page(described: Mapping[str, Any], url: str) -> str:
    """Render the OpenAPI description."""
    short = {path: each for path, each in described["paths"].items() if "post" not in each}
    calls = {path: each for path, each in described["paths"].items() if "post" in each}
    return _PAGE.format(
        version=escape(described["info"]["version"]),
        url=escape(url),
        short="".join(_entry("GET", path, each["get"]) for path, each in sorted(short.items())),
        operations="".join(_entry("POST", path, each["post"]) for path, each in calls.items()),
        types="".join(_type(*item) for item in sorted(described["components"]["schemas"].items())),
    )


def _entry(method: str, path: str, entry: Mapping[str, Any]) -> str:
    result = entry["responses"]["200"]["content"].get("application/json")
    returns = _text_of(result["schema"]) if result else "a file"
    arguments = "".join(
        f"<li><code>{escape(name)}</code>: {text}</li>" for name, text in _arguments(entry)
    )
    role = escape(entry.get("description", ""))
    return (
        f'<details class="card"><summary><code>{method} {escape(path)}</code> '
        f"{escape(entry['summary'])}</summary><ul>{arguments}</ul>"
        f"<p>Returns {returns}. {role}</p></details>"
    )


def _arguments(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for each in entry.get("parameters", ()):
        schema = each.get("schema")
        needed = "" if each.get("required") else ", optional"
        yield each["name"], f"{_text_of(schema) if schema else 'a JSON object'}{needed}"
    body = entry.get("requestBody", {}).get("content", {}).get("application/json")
    for name, schema in body["schema"]["properties"].items() if body else ():
        needed = "" if name in body["schema"]["required"] else ", optional"
        yield name, f"{_text_of(schema)}{needed}"


def _type(name: str, schema: Mapping[str, Any]) -> str:
    fields = "".join(
        f"<li><code>{escape(field)}</code>: {_text_of(each)}</li>"
        for field, each in schema.get("properties", {}).items()
    )
    text = "" if fields else _text_of(schema)
    about = escape(schema.get("description", "").partition("\n")[0])
    return (
        f'<details class="card" id="{escape(name)}"><summary><code>{escape(name)}</code> '
        f"{about}</summary><ul>{fields}</ul>{text}</details>"
    )


def _text_of(schema: Mapping[str, Any]) -> str:
    """Return a schema in a few words, with links to the types that it names."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "enum" in schema:
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(_text_of(each) for each in schema[key])
    if "items" in schema:
        return f"list of {_text_of(schema['items'])}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object with values {_text_of(schema['additionalProperties'])}"
    return escape(str(schema.get("type", schema.get("const", "any value"))))
