"""The results of tools as texts that a model can read."""

from collections.abc import Mapping

from proxy.conversation import json
from proxy.dialects.foreign_history import Part
from proxy.dialects.openai_responses.contents import read_content
from proxy.dialects.raw_json import Node, own_text
from proxy.facts import Fact


def result_in(kind: str, output: Node | None, facts: list[Fact]) -> list[Part]:
    """Read what an item of this type says of the call that it answers."""
    if output is None or output.is_text:
        return read_content(output, facts)
    if kind == "shell_call_output":
        return [own_text("\n".join(map(_command_result, output.elements())))]
    if isinstance(output.value, list):
        return read_content(output, facts)
    return [own_text(output.source.decode())]  # some clients send an object as it is


def is_failure(kind: str, members: Mapping[str, Node]) -> bool:
    """Return whether an item says that its call has failed."""
    status = members.get("status")
    is_patch = kind == "apply_patch_call_output"
    return is_patch and status is not None and status.value == "failed"


def _command_result(node: Node) -> str:
    """Write what one command has printed, and how it ended if that was not well."""
    members = node.members()
    printed = [_string(members.get("stdout")), _string(members.get("stderr"))]
    outcome = members["outcome"].members() if "outcome" in members else {}
    kind, code = (
        outcome[name].value if name in outcome else None for name in ("type", "exit_code")
    )
    if kind == "timeout":
        printed.append("[timed out]")
    elif code:
        printed.append(f"[exit code {json.dump_text(code)}]")
    return "\n".join(text.removesuffix("\n") for text in printed if text)


def _string(node: Node | None) -> str:
    return "" if node is None else node.text().text
