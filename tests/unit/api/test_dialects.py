import subprocess
import sys

import pytest

from proxy.api.dialects import CHAT, STAMP, DialectRoute, Dialects, all_dialects
from proxy.dialects.openai_chat.dialect import ChatDialect

OTHER = ChatDialect(STAMP, "other")
CHAT_PATH = "/v1/chat/completions"
DIALECTS = Dialects(
    DialectRoute(lambda: CHAT, (CHAT_PATH,)),
    DialectRoute(lambda: OTHER, ("/v1/other",), header="other-version"),
)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (CHAT_PATH, "chat"),
        ("/v1/other", "other"),
        ("/v1/other/count", "other"),
        ("/nowhere", "chat"),
    ],
)
def test_the_path_of_a_dialect_selects_it(path: str, name: str) -> None:
    assert DIALECTS.of(path).name == name


@pytest.mark.parametrize(
    ("path", "name"), [("/v1/models/x", "other"), ("/nowhere", "other"), (CHAT_PATH, "chat")]
)
def test_on_other_paths_the_version_header_of_a_dialect_selects_it(path: str, name: str) -> None:
    assert DIALECTS.of(path, {"other-version": "1"}).name == name


def test_every_dialect_has_a_name_and_separate_paths() -> None:
    routes = list(all_dialects())
    paths = [path for route in routes for path in (*route.paths, route.count_path) if path]
    assert len(paths) == len(set(paths))
    routes_by_name = {(route.dialect.name, route.paths) for route in routes}
    assert len(routes_by_name) == len(routes)
    assert {name for name, _ in routes_by_name} == {"chat", "messages", "responses", "ollama"}
    assert all_dialects().of("/api/tags").name == "ollama"


def test_a_stamp_has_unique_tokens_and_the_time() -> None:
    assert STAMP.token() != STAMP.token()
    assert len(STAMP.token()) == 24
    assert STAMP.now() > 0


def test_a_dialect_is_imported_for_its_first_request() -> None:
    program = """
import sys
from proxy.api.dialects import all_dialects
dialects = all_dialects()
others = ["anthropic_messages", "openai_responses"]
decoders = [f"proxy.dialects.{one}.dialect" for one in others]
assert not any(one in sys.modules for one in decoders), "early"
assert [dialects.of(path).name for path in ("/v1/messages", "/v1/responses")]
assert all(one in sys.modules for one in decoders), "never"
"""
    subprocess.run([sys.executable, "-c", program], check=True)
