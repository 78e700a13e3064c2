"""The replies of a model without errors: answers, calls to several tools, a long file.

The texts are as varied as replies of real models: several languages, quoted JSON and code,
questions, offers, and arguments in every notation that JSON allows.
"""

from benchmarks.load.workloads import describe_tool
from proxy.conversation.json import JsonObject

# `#` is replaced by the number of the reply, so that no two replies are equal.
ANSWERS = (
    "The weather in Paris is fine today: # degrees, a light wind from the west, and no rain.",
    "All # tests pass. Nothing else in the repository has changed since the last release.",
    "I found # files. Which of them do you want me to open first?",
    "No, that is not possible with the tools I have: the file is # bytes long and write-protected.",
    "Done. I have renamed the function in # places; let me know if the tests are to follow.",
    "Here is the result:\n\n| city | degrees |\n| --- | --- |\n| Oslo | # |\n| Rome | 31 |\n",
    "1. The build failed in step #.\n2. The reason is a missing header.\n3. Install it and retry.",
    'The server answers `{"status": "ok", "queue": #}` when it is ready, and 503 before that.',
    "Use this:\n\n```python\nfor place in range(#):\n    print(f'{place} < {place + 1}')\n```\n\n"
    "It prints one line for each place.",
    'The settings look like this:\n\n```json\n{\n  "port": #,\n  "hosts": ["a", "b"]\n}\n```\n',
    "Das Ergebnis ist #. Mehr ist dazu nicht zu sagen, außer dass es gestern noch anders war.",
    "La réponse est # : le fichier a été modifié hier, et les tests passent « sans erreur ».",
    "結果は#です。ほかに変更されたファイルはありません。",
    "Готово: # файлов проверено, ошибок нет.",
    "If x < # and y > 3, then x & y differ; <b>this</b> is the only tag that the page contains.",
    "Because the cache was cold. The # requests after it took 3 ms each, as you would expect.",
    "Hello! I am well, thank you. You are visitor number #. 🙂",
    "#",
    "In short: yes. The long version has # parts, and each of them ends the same way: yes.",
    'The call was `get_weather(city="Paris")`, and it returned # degrees. That is the whole story.',
    "The plan has three steps: first the schema, then the # rows, then the index. Shall I start?",
    "Sorry, I cannot help with that. Is there anything else among the # points that I could do?",
    "Line #: `if (a[0] == '{') { return; }` never runs, since `a` is always empty there.",
    "> We shall ship on day #.\n\nThat is what the minutes say; nothing was said about a price.",
)

PREAMBLES = (
    "Let me look that up for you.",
    "I'll check number # first.",
    "Both values are needed to tell; I begin with the first of them.\n\n",
    "Die Datei # fehlt noch. Ich lese sie jetzt.",
    "Step # of 9: reading what is there.\n",
    "まず#を確認します。",
    "OK.",
)

_TEXT: JsonObject = {"type": "string"}
TOOLS: tuple[JsonObject, ...] = (
    describe_tool(
        "get_weather",
        {
            "city": _TEXT,
            "days": {"type": "integer", "minimum": 1},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        required=("city",),
    ),
    describe_tool("write_file", {"path": _TEXT, "text": _TEXT}, required=("path", "text")),
    describe_tool(
        "read_file", {"path": _TEXT, "from_line": {"type": "integer"}}, required=("path",)
    ),
    describe_tool(
        "search",
        {
            "query": _TEXT,
            "folders": {"type": "array", "items": _TEXT},
            "where": {"type": "object", "properties": {"name": _TEXT, "deep": {"type": "boolean"}}},
            "limit": {"type": ["integer", "null"]},
            "weight": {"type": "number"},
        },
        required=("query",),
    ),
    describe_tool("get_time", {}, required=()),
)

# Names and arguments, as a model writes them; `#` is the number of the reply.
CALLS = (
    ("get_weather", '{"city":"Paris","days":#}'),
    ("get_weather", '{"city": "São Paulo, #", "unit": "celsius"}'),
    ("get_weather", '{"unit": "fahrenheit", "days": 3, "city": "#"}'),
    ("get_weather", '{\n  "city": "Oslo",\n  "days": #\n}'),
    ("read_file", '{"path": "src/part_#.py"}'),
    ("read_file", r'{"path": "C:\\Users\\#\\notes.txt", "from_line": -1}'),
    ("read_file", r'{"path": "\/tmp\/#\/\u00fcber.txt", "from_line": 0}'),
    ("search", '{"query": "def main", "folders": ["src", "tests/#"], "limit": null}'),
    ("search", '{"query": "#", "where": {"name": "*.py", "deep": true}, "weight": 2.50}'),
    ("search", r'{"query": "\"quoted\", {braced} and [#]", "folders": [], "weight": 1e3}'),
    ("search", '{"query": "東京 #", "where": {}, "limit": 10}'),
    ("search", r'{"query": "line\nbreak\t\ud83d\ude42 #"}'),
    ("write_file", '{"path": "notes_#.txt", "text": ""}'),
    ("write_file", r'{"text": "#!/bin/sh\necho \"done\" > out\n", "path": "run.sh"}'),
    ("get_time", "{}"),
)

# The lines of a long file, with JSON escapes.
LINES = (
    r"def part_#(values: list[int]) -> str:\n",
    r"    \"\"\"Return what is said of `#`, or \\\"nothing\\\".\"\"\"\n",
    r"    if not values or values[0] < #:\n        return \"{'kind': 'none'}\"\n",
    r"\treturn f\"{len(values)} of # values, \u00fcber {sum(values)}\"\n\n",
)
