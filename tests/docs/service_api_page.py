"""Writes docs/service-api.md from the description of the API: `python -m tests.docs.service_api_page`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autotune.service.app import create_app
from autotune.service.service_settings import ServiceSettings

PAGE = Path(__file__).parents[2] / "docs" / "service-api.md"
HEAD = """\
# The API of the service

Written by `make service-api` from `/v1/openapi.json`, the description that every server gives of itself.

Every request has `Authorization: Bearer TOKEN`, with the content of the server's token file. A read-only token may GET.
Answers are JSON; times are UTC in ISO 8601. A repeated `POST /v1/jobs` with an equal `Idempotency-Key` gives the same
job. With curl, in a way that shows the token to nobody else on the machine:

    ask() { curl --config <(printf 'header = "Authorization: Bearer %s"' "$(cat token)") "$@"; }
    ask http://127.0.0.1:8642/v1/jobs
    ask --no-buffer http://127.0.0.1:8642/v1/jobs/ID/events

An error is `application/problem+json` with `status`, `title`, `detail`, and mostly `code` and `hint`:

    {"type": "urn:autotune:usage", "title": "Unprocessable Entity", "status": 422, "code": "usage",
     "detail": "There is no project 'x'.", "hint": "Registered: demo.", "exit_code": 2}

Python: `from autotune.client import Client`. [events.md](events.md) describes the documents of `/events`.
"""


def description() -> dict[str, Any]:
    """The server's description of the API."""
    settings = ServiceSettings(storage="sqlite://", projects={}, token="")
    return create_app(settings).openapi()


def page() -> str:
    """The whole page."""
    api = description()
    lines = [HEAD]
    tags: dict[str, list[str]] = {}
    for path, ways in api["paths"].items():
        for method, way in ways.items():
            tags.setdefault(way["tags"][0], []).extend(_route(method, path, way))
    for tag, described in tags.items():
        lines += [f"## {tag.capitalize()}\n", *described]
    lines += ["## Bodies\n"]
    for name, schema in sorted(api["components"]["schemas"].items()):
        if name.endswith("Body"):
            lines += _body(name, schema)
    return "\n".join(lines).rstrip() + "\n"


def _route(method: str, path: str, way: Mapping[str, Any]) -> Iterator[str]:
    yield f"### `{method.upper()} {path}`\n"
    yield f"{way['description']}\n"
    body = way.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if "$ref" in body:
        name = body["$ref"].rpartition("/")[2]
        yield f"Body: [{name}](#{name.lower()})\n"
    named = [one for one in way.get("parameters", ()) if one["in"] != "path"]
    for one in named:
        words = one.get("description") or one["schema"].get("description") or ""
        yield f"* `{one['name']}` ({one['in']}): {_type(one['schema'])}{f'. {words}' if words else ''}"
    if named:
        yield ""
    codes = ", ".join(f"{code} {answer['description'].rstrip('.')}" for code, answer in way["responses"].items())
    yield f"Answers: {codes}.\n"


def _body(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name}\n"
    yield f"{schema.get('description', '')}\n"
    yield "| field | type | |"
    yield "| --- | --- | --- |"
    required = schema.get("required", ())
    for field, about in schema["properties"].items():
        words = about.get("description", "") + ("" if field in required else " Optional.")
        yield f"| `{field}` | {_type(about)} | {words.strip()} |"
    yield ""
    for field, about in schema["properties"].items():
        if about.get("properties"):
            yield f"Keys of `{field}`:\n"
            yield "| key | type | |"
            yield "| --- | --- | --- |"
            for key, option in about["properties"].items():
                yield f"| `{key}` | {_type(option)} | {option.get('description', '').replace('|', chr(92) + '|')} |"
            yield ""


def _type(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one) for one in schema["anyOf"] if one.get("type") != "null"))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    return str(schema.get("type", "any"))


if __name__ == "__main__":
    PAGE.write_text(page())
