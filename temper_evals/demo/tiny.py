"""The demonstration with the tiny model: a language model, behind a template that is not its own.

With the wrong template llama-server learns no syntax of calls and hands them on as text: the
commonest mismatch of models and servers. What the model writes is its own, right or wrong.
"""

from temper_evals.demo.scenarios import Demonstration, DemoScenario
from temper_evals.tiny_model import chat_template, shipped
from temper_evals.tiny_model.tools import tool_named


def _asked(title: str, prompt: str, right: str) -> DemoScenario:
    return DemoScenario(title, prompt, right=right)


_SCENARIOS = (
    _asked("a city that it knows", "What is the weather in Oslo?", 'get_weather(city="Oslo")'),
    _asked("a city that it never saw", "Will it rain in Kyoto?", 'get_weather(city="Kyoto")'),
    _asked("a number", "Set a timer for 25 minutes.", "set_timer(minutes=25)"),
    _asked(
        "two values",
        "Tell Ada that dinner is ready.",
        'send_message(to="Ada", text="dinner is ready")',
    ),
    _asked("a made-up word", "Play bramel.", 'play_song(title="bramel")'),
    _asked("a tool that it never saw", "Lock the door of the garage.", 'lock_door(room="garage")'),
)
_TOOLS = ("get_weather", "set_timer", "send_message", "play_song", "lock_door")


def demonstration() -> Demonstration:
    """Return what is shown; how the model was made stands beside it."""
    facts = shipped.facts()
    parameters, minutes = facts["parameters"], facts["cpu_minutes"]
    model = f"a language model of {parameters:,} parameters, trained for {minutes} minutes"
    introduction = (
        f"A real llama-server runs\n{model} on one core.\n"
        "It knows two dozen tools and nothing else, and says nothing about larger models.\n"
        "The server was given a template without calls, so that it cannot read them.\n"
        "The words are the model's own: a usable call may still be a wrong one.\n"
    )
    return Demonstration(
        introduction,
        model,
        "what is asked",
        _SCENARIOS,
        [tool_named(name).describe() for name in _TOOLS],
        shipped.MODEL_FILE,
        shipped.WINDOW,
        (*shipped.FLAGS, "--chat-template", chat_template.MUTE),
    )
