"""The common part of the modules that write requests to engines without chat completions."""

import base64
import binascii
from collections.abc import Iterator
from typing import NamedTuple

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.parts import Image
from proxy.conversation.requests import UpstreamRequest
from proxy.dialects.field_table import ENFORCED, IGNORED, FieldTable, Handling, refuse, rows
from proxy.dialects.lenient_json import as_object
from proxy.errors import InvalidRequest

_SCHEME = "data:"
_BASE64 = ";base64"
_NOTHING = b"null"

# fields of chat completions with the same handling for every engine
COMMON = {
    **rows(ENFORCED, "model messages tools tool_choice parallel_tool_calls functions stream"),
    **rows(ENFORCED, "stream_options n max_tokens max_completion_tokens temper"),
    **rows(IGNORED, "prediction store user metadata service_tier safety_identifier"),
    **rows(IGNORED, "prompt_cache_key prompt_cache_retention"),
    "function_call": refuse("Use `tools` and `tool_choice`.", ("auto", "none")),
}


def carry_fields(
    upstream_request: UpstreamRequest, table: FieldTable
) -> Iterator[tuple[str, JsonValue, str]]:
    """Yield name, value and target of each copied field.

    Raises `InvalidRequest` for a refused field.
    """
    for name, raw in upstream_request.request.fields.items():
        # some clients serialize all their options, and send null for options that are not set
        if name in upstream_request.omits or raw.strip() == _NOTHING:
            continue
        row = table.of(name)
        if row.handling is Handling.CARRIED:
            yield name, json.parse(raw), row.target
        elif row.handling is Handling.REFUSED:
            table.check(name, json.parse(raw))


def put_once(body: JsonObject, target: str, value: JsonValue, param: str) -> None:
    """Write a member of the body; `target` is its path, such as `options.top_p`.

    Raises `InvalidRequest` for the field `param` if the member already has another value.
    """
    group, _, name = target.rpartition(".")
    members = group_in(body, group) if group else body
    if members.setdefault(name, value) != value:
        problem = "This option was set twice, with different values. Remove one of them."
        raise InvalidRequest(problem, param)


def group_in(body: JsonObject, name: str) -> JsonObject:
    return as_object(body.setdefault(name, {}))


def format_schema(answer_format: JsonObject) -> JsonObject | None:
    """Return the schema in a `response_format`, None if it has none."""
    json_schema = answer_format.get("json_schema")
    schema = (json_schema if isinstance(json_schema, dict) else answer_format).get("schema")
    return schema if isinstance(schema, dict) else None


class Picture(NamedTuple):
    """A picture; `data` is base64, `media_type` is e.g. "image/png" or empty."""

    media_type: str
    data: str


def read_picture(image: Image, param: str) -> Picture:
    """Read an image of the message at the path `param`; raises InvalidRequest if it is not base64.

    The image's URL is a `data:` URL, because the decoder of the request accepts no other URLs.
    """
    head, _, data = image.url.partition(",")
    try:
        is_valid = head.endswith(_BASE64) and bool(base64.b64decode(data, validate=True))
    except binascii.Error:
        is_valid = False
    if not is_valid:
        problem = 'Expected an image in base64: "data:image/png;base64,...".'
        raise InvalidRequest(problem, f"{param}.{image.path}.image_url.url")
    media_type = head[len(_SCHEME) : -len(_BASE64)].partition(";")[0]
    return Picture(media_type.strip().lower(), data)
