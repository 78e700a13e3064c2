import mcp_types as mcp
import pytest

from proxy.mcp.results import text_of


def result(*content: mcp.ContentBlock, **more: object) -> mcp.CallToolResult:
    return mcp.CallToolResult.model_validate({"content": content, **more})


def said(text: str) -> mcp.TextContent:
    return mcp.TextContent(type="text", text=text)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (result(said("a"), said("b")), "a\nb"),
        (result(), "Done."),
        (result(said("")), "Done."),
        (result(structuredContent={"degrees": 21}), '{"degrees":21}'),
        (result(said("warm"), structuredContent={"degrees": 21}), "warm"),
        (result(said("no such file"), isError=True), "Error: no such file"),
        (result(said("Error executing it"), isError=True), "Error executing it"),
        (result(isError=True), "Error: the tool failed"),
    ],
)
def test_a_result_becomes_text(given: mcp.CallToolResult, text: str) -> None:
    assert text_of(given, 1000) == text


def test_what_is_no_text_becomes_a_line_that_says_what_it_was() -> None:
    image = mcp.ImageContent(type="image", data="AAAAAAAA", mime_type="image/png")
    sound = mcp.AudioContent(type="audio", data="AAAA", mime_type="audio/wav")
    link = mcp.ResourceLink(type="resource_link", name="notes", uri="file:///n")
    blob = mcp.BlobResourceContents(uri="file:///b", blob="AAAA")
    text = mcp.TextResourceContents(uri="file:///t", text="written")
    files = [mcp.EmbeddedResource(type="resource", resource=one) for one in (blob, text)]
    assert text_of(result(image, sound, link, *files), 1000).splitlines() == [
        "[image: image/png, 6 bytes; not shown]",
        "[audio: audio/wav, 3 bytes; not shown]",
        "[link: notes, file:///n]",
        "[file: file:///b, 3 bytes, not shown]",
        "written",
    ]


def test_a_long_result_keeps_its_beginning_and_its_end() -> None:
    text = text_of(result(said("a" * 5000 + "z" * 5000)), 1000)
    assert len(text) == 1000
    assert (text[0], text[-1]) == ("a", "z")
    assert "the middle of 10000 characters is left out" in text
