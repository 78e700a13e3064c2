import pytest
from msgspec.structs import replace

from proxy.backends.affinity import PREFIX_HEADER, SESSION_HEADERS, conversation_key, rank
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import Request
from proxy.dialects.openai_chat.decode import decode_request
from tests.fakes.running_proxy import TOOLS

SYSTEM: JsonObject = {"role": "system", "content": "Be kind."}
ASKED: JsonObject = {"role": "user", "content": "How is the weather?"}
ANSWERED: JsonObject = {"role": "assistant", "content": "Fine."}
MORE: JsonObject = {"role": "user", "content": "And tomorrow?"}


def request(*messages: JsonValue, tools: JsonValue = TOOLS, **others: JsonValue) -> Request:
    body: JsonObject = {"model": "m", "messages": [*messages], "tools": tools, **others}
    return decode_request(json.dump(body))


def key(*messages: JsonValue, tools: JsonValue = TOOLS, **others: JsonValue) -> str:
    return conversation_key(request(*messages, tools=tools, **others), {})


FIRST = key(SYSTEM, ASKED)


def test_all_turns_of_a_conversation_have_the_same_conversation_key() -> None:
    assert key(SYSTEM, ASKED, ANSWERED, MORE) == FIRST
    assert key(SYSTEM, ASKED, ANSWERED, MORE, temperature=0.5, stream=True) == FIRST
    assert len(FIRST) == 16


def test_cache_control_does_not_change_the_conversation_key() -> None:
    marked: JsonValue = {"type": "text", "text": ASKED["content"], "cache_control": {"type": "x"}}
    assert key(SYSTEM, {"role": "user", "content": [marked]}) == FIRST


@pytest.mark.parametrize(
    "other",
    [
        key(ASKED),
        key(SYSTEM, MORE),
        key({**SYSTEM, "content": "Be rude."}, ASKED),
        key(SYSTEM, ASKED, tools=TOOLS[:1]),
        key(SYSTEM, SYSTEM, ASKED),
        key({"role": "system", "content": "Be kind.How is"}, {**ASKED, "content": " the weather?"}),
    ],
)
def test_the_conversation_key_depends_on_the_system_message_the_user_message_and_the_tools(
    other: str,
) -> None:
    assert other != FIRST


def test_a_conversation_without_a_user_message_has_a_conversation_key() -> None:
    assert key(SYSTEM) != key(SYSTEM, ASKED)


@pytest.mark.parametrize("name", SESSION_HEADERS)
def test_a_session_header_takes_precedence_over_the_first_messages(name: str) -> None:
    first = conversation_key(request(SYSTEM, ASKED), {name: "s1"})
    assert first == conversation_key(request(MORE), {name: "s1"})
    assert first != conversation_key(request(MORE), {name: "s2"})
    assert conversation_key(request(SYSTEM, ASKED), {name: ""}) == FIRST


def test_a_subagent_has_a_separate_conversation_key() -> None:
    session = {"x-claude-code-session-id": "s1"}
    agents = [{**session, "x-claude-code-agent-id": agent} for agent in ("", "a1", "a2")]
    keys = [conversation_key(request(MORE), headers) for headers in (session, *agents)]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
    assert conversation_key(request(ASKED), {"x-claude-code-agent-id": "a1"}) == key(ASKED)


def test_a_thread_id_header_takes_precedence_over_the_session_id() -> None:
    first = conversation_key(request(MORE), {"session-id": "s", "thread-id": "t1"})
    assert first == conversation_key(request(ASKED), {"session-id": "s", "thread-id": "t1"})
    assert first != conversation_key(request(MORE), {"session-id": "s", "thread-id": "t2"})


def test_without_a_session_header_the_session_in_the_body_is_used() -> None:
    named, other = (replace(request(item), session="s1\ud800") for item in (MORE, ASKED))
    assert conversation_key(named, {}) == conversation_key(other, {})
    assert conversation_key(named, {}) != conversation_key(request(MORE), {})
    headers = {"x-session-id": "s"}
    assert conversation_key(named, headers) == conversation_key(request(ASKED), headers)


def test_requests_with_the_same_prompt_cache_key_have_the_same_conversation_key() -> None:
    assert key(SYSTEM, ASKED, prompt_cache_key="s") == key(MORE, prompt_cache_key="s") != FIRST


def test_a_valid_key_in_the_prefix_header_is_the_conversation_key() -> None:
    given = {PREFIX_HEADER: "0123456789abcdef", "x-session-id": "s"}
    assert conversation_key(request(ASKED), given) == "0123456789abcdef"
    for wrong in ("0123456789ABCDEF", "0123", "x" * 16, "0123456789abcdef\n"):
        assert conversation_key(request(SYSTEM, ASKED), {PREFIX_HEADER: wrong}) == FIRST


def test_a_message_with_lone_surrogates_has_a_conversation_key() -> None:
    broken = request(ASKED)
    message = replace(broken.messages[0], text="\ud800")
    assert conversation_key(replace(broken, messages=(message,)), {})


MEMBERS = ["http://a", "http://b", "http://c", "http://d"]


def test_rank_spreads_conversations_evenly_over_the_members() -> None:
    first = [rank(f"{number:016x}", MEMBERS)[0] for number in range(400)]
    assert all(60 < first.count(name) < 140 for name in MEMBERS)


def test_rank_does_not_depend_on_the_order_of_members_in_the_settings() -> None:
    assert rank(FIRST, MEMBERS) == rank(FIRST, MEMBERS[::-1])


def test_removing_a_member_does_not_change_the_order_of_the_others() -> None:
    for number in range(50):
        order = rank(f"{number:016x}", MEMBERS)
        left = [name for name in MEMBERS if name != order[1]]
        assert rank(f"{number:016x}", left) == [name for name in order if name != order[1]]
