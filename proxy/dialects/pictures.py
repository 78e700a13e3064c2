"""Pictures as clients of chat completions send them: a `data:` URL in base64."""

import base64
import binascii
from typing import NamedTuple

from proxy.conversation.json import JsonObject
from proxy.errors import InvalidRequest

_SCHEME = "data:"
_BASE64 = ";base64"


class Picture(NamedTuple):
    """A picture; `data` is base64, `media_type` is e.g. "image/png" or empty."""

    media_type: str
    data: str


def read_picture(part: JsonObject, where: str) -> Picture:
    """Read a part of content; raises InvalidRequest for what is no picture in base64.

    The request was checked to hold `data:` URLs only.
    """
    holder = part.get("image_url")
    url = holder.get("url") if isinstance(holder, dict) else holder
    head, _, data = f"{url}".partition(",")
    try:
        is_whole = head.endswith(_BASE64) and bool(base64.b64decode(data, validate=True))
    except binascii.Error:
        is_whole = False
    if not is_whole:
        problem = 'Expected a picture in base64: "data:image/png;base64,...".'
        raise InvalidRequest(problem, f"{where}.image_url.url")
    media_type = head[len(_SCHEME) : -len(_BASE64)].partition(";")[0]
    return Picture(media_type.strip().lower(), data)
