"""What a tool returned, as text for a model: bounded, and without what is no text."""

import mcp_types as mcp

from proxy.conversation import json
from proxy.tools.results import DONE, cut, failure


def text_of(result: mcp.CallToolResult, longest: int) -> str:
    """Put a result into at most `longest` characters.

    Pictures, sounds and files become a line that says what they were; one that only has structured
    content is written as JSON. A failure begins with `Error:`.
    """
    text = "\n".join(map(_part, result.content))
    if not result.content and result.structured_content is not None:
        text = json.dump_text(result.structured_content)
    if result.is_error:
        text = text if text.startswith("Error") else failure(text or "the tool failed")
    return cut(text or DONE, longest)


def _part(part: mcp.ContentBlock) -> str:
    match part:
        case mcp.TextContent():
            return part.text
        case mcp.ImageContent() | mcp.AudioContent():
            return f"[{part.type}: {part.mime_type}, {_size(part.data)}; not shown]"
        case mcp.ResourceLink():
            return _line("link", part.name, part.uri, part.mime_type)
        case mcp.EmbeddedResource(resource=mcp.TextResourceContents() as resource):
            return resource.text
        case mcp.EmbeddedResource(resource=resource):
            size = _size(resource.blob) if isinstance(resource, mcp.BlobResourceContents) else ""
            return _line("file", resource.uri, resource.mime_type, size, "not shown")


def _line(kind: str, *said: object) -> str:
    return f"[{kind}: {', '.join(str(one) for one in said if one)}]"


def _size(base64: str) -> str:
    return f"{len(base64) * 3 // 4} bytes"
