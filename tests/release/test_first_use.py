"""The first commands of a new user, with the wheel and with the one-file program."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.engines.model import MODEL_FILE, NAME
from tests.fakes.right_ollama import TAGGED, RightOllama
from tests.fakes.sockets import listening_in_thread
from tests.release.conftest import REPOSITORY, VERSION, Installed
from tests.timeouts import TIMEOUT_SECONDS

SERVED = ("--model", str(MODEL_FILE), "--context-tokens", "2048", "--port", "0", "--json")
GUIDE = (REPOSITORY / "docs/guides/agent-library.md").read_text(encoding="utf-8")


def ask(user: Installed, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        user.command(*arguments),
        cwd=user.folder,
        env={**user.surroundings, **more},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


@contextmanager
def serving(user: Installed, *flags: str, **more: str) -> Iterator[httpx.Client]:
    """Serve until the block ends; an engine that `serve` started has ended then, too."""
    command = user.command("serve", *flags)
    with subprocess.Popen(
        command,
        cwd=user.folder,
        env={**user.surroundings, **more},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            url = str(json.loads(process.stdout.readline())["url"])
            with httpx.Client(base_url=url, timeout=TIMEOUT_SECONDS, trust_env=False) as client:
                yield client
        finally:
            process.terminate()
            assert process.wait(TIMEOUT_SECONDS) == 0


@pytest.fixture(scope="module")
def served(installed: Installed) -> Iterator[httpx.Client]:
    with serving(installed, *SERVED) as client:
        yield client


def test_version_names_commit_python_and_engine(installed: Installed) -> None:
    output = ask(installed, "--version").stdout
    version = re.escape(VERSION)
    commit, python, engine = "commit [0-9a-f]{12}", r"Python 3\.\d+\.\d+", r"embedded .+ [\d.]+"
    assert re.fullmatch(rf"temper {version} \({commit}, {python}, {engine}\)\n", output)


def test_temper_demo_prints_its_result_in_80_columns(installed: Installed) -> None:
    shown = ask(installed, "demo", "--once", COLUMNS="80")
    assert "0 of 6 without Temper, 6 of 6 with Temper" in shown.stdout, shown.stderr
    assert max(map(len, shown.stdout.splitlines())) <= 80


def called(client: httpx.Client, prompt: str, model: str = "default") -> str:
    """Return the name of the tool that the model calls."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": schema}}
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "tools": [tool],
        "tool_choice": "required",
        "max_tokens": 200,
    }
    answer = client.post("/v1/chat/completions", json=body).json()
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    return str(call["function"]["name"])


def test_a_served_model_returns_a_call(served: httpx.Client) -> None:
    assert called(served, "What is the weather in Oslo?") == "get_weather"


@pytest.mark.parametrize("names_it", [True, False], ids=["named", "discovered"])
def test_a_served_ollama_returns_a_call(installed: Installed, *, names_it: bool) -> None:
    ollama = RightOllama()
    with listening_in_thread(ollama.app) as url:
        wanted = ("--ollama", TAGGED) if names_it else ("--look-at", url)
        with serving(installed, *wanted, "--port", "0", "--json", OLLAMA_HOST=url) as client:
            assert called(client, "What is the weather in Bern? [[Bern]]", TAGGED) == "get_weather"
    assert ollama.generations == 1


def test_the_dashboard_and_its_assets_are_served(served: httpx.Client) -> None:
    page = served.get("/ui")
    assert page.status_code == 200
    sources = re.findall(r'(?:src|href)="(?!data:|#)([^"]+)"', page.text)
    assert sources
    for source in sources:
        assert served.get(str(page.url.join(source))).status_code == 200, source


def test_temper_doctor_reports_no_failure(installed: Installed, served: httpx.Client) -> None:
    bundle = installed.folder / "report.zip"
    result = ask(
        installed, "doctor", "--backend-url", str(served.base_url), "--bundle", str(bundle)
    )
    assert "no other distribution installs a package `proxy`" in result.stdout, result.stderr
    assert " 0 fail" in result.stdout or "checks passed" in result.stdout
    assert bundle.exists()


def test_temper_eval_measures_six_right_runs(installed: Installed) -> None:
    output = ask(installed, "eval", "--suite", "quick", "--family", "single", "--pace", "0")
    assert output.returncode == 0, output.stderr
    assert "6 runs, 6 right" in output.stderr
    assert "ceiling" in output.stdout


@pytest.mark.parametrize(
    "installed", ["wheel"], indirect=True
)  # the one-file program cannot be imported as a library
def test_the_first_example_of_the_library_guide_runs(
    installed: Installed, served: httpx.Client
) -> None:
    tools, agent = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)[:2]
    program = tools + agent.replace("http://127.0.0.1:8080", str(served.base_url).rstrip("/"))
    ran = subprocess.run(
        [str(installed.python), "-c", program],
        cwd=installed.folder,
        env=installed.surroundings,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_shell_completion_knows_the_commands(installed: Installed) -> None:
    variables = {"_TEMPER_COMPLETE": "bash_complete", "COMP_WORDS": "temper ser", "COMP_CWORD": "1"}
    assert ask(installed, **variables).stdout.split() == ["plain,serve"]


def test_second_server_reports_the_occupied_port(
    installed: Installed, served: httpx.Client
) -> None:
    taken = ("--port", str(served.base_url.port), "--backend-url", str(served.base_url))
    result = ask(installed, "serve", *taken)
    assert result.returncode == 1
    assert "cannot listen on" in result.stderr
    assert "--port" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_serve_without_a_server_explains_what_to_do(installed: Installed) -> None:
    result = ask(installed, "serve", "--port", "0", "--look-at", "http://127.0.0.1:9")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "--backend-url" in result.stderr


def test_proxy_variables_are_ignored(installed: Installed, served: httpx.Client) -> None:
    address = str(served.base_url)
    nowhere = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
    result = ask(installed, "models", "--backend-url", address, **nowhere)
    assert result.returncode == 0, result.stderr
    assert NAME in result.stdout


def test_unwritable_home_is_not_an_error(installed: Installed, served: httpx.Client) -> None:
    home = {"HOME": "/proc", "XDG_CACHE_HOME": "/proc/none"}  # not even root can write there
    result = ask(installed, "doctor", "--backend-url", str(served.base_url), **home)
    assert "Traceback" not in result.stderr
    assert "checks" in result.stdout, result.stderr
