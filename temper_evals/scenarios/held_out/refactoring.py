"""Tasks that rename a function in two files, one of which may change in the meantime."""

from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.building import TaskBuilder
from temper_evals.scenarios.catalogue import SampleValues, describe_tool
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.scenarios.task import ExpectedEnd, PlannedTask
from temper_evals.scenarios.worlds import CannedOutcome

_EDIT: JsonObject = {
    "type": "object",
    "properties": {"old_line": {"type": "string"}, "new_line": {"type": "string"}},
    "required": ["old_line", "new_line"],
    "additionalProperties": False,
}
_EDITS: JsonObject = {"type": "array", "items": _EDIT}
_TOOLS = (
    describe_tool("read_file", "Return the text of a file.", path="string"),
    describe_tool("list_folder", "Return the names of files.", folder="string"),
    describe_tool("search_code", "Find a text in all files.", text="string", exact="boolean"),
    describe_tool("run_tests", "Run tests; returns a run.", suite="string", verbose="boolean"),
    describe_tool("edit_file", "Replace whole lines of a file.", path="string", edits=_EDITS),
    describe_tool("rename_file", "Rename a file.", old_path="string", new_path="string"),
    describe_tool("delete_file", "Delete a file.", path="string"),
    describe_tool("format_file", "Format a file by the rules of its language.", path="string"),
)
_CHANGING = frozenset({"edit_file", "rename_file", "delete_file", "format_file"})
_WORDS = ("total", "label", "route", "token", "window", "queue", "budget", "margin")
_LANGUAGES = (
    (
        "py",
        "def {name}(values, limit={limit}):\n"
        '\t"""Say "how much" {name} is, in {unit}."""\n'
        "\treturn [one for one in values if one['{key}'] <= limit]\n",
        "print(f\"{{{name}(rows, limit={limit})!r:>10}}\\t# 'quoted' \\\\ {unit}\")",
    ),
    (
        "js",
        "export function {name}(values, limit = {limit}) {{\n"
        '  // "{name}", in {unit}\n'
        "  return values.filter((one) => one['{key}'] <= limit);\n}}\n",
        'console.log(`${{{name}(rows, {limit})}}`, /\\d+\\s*"{unit}"/.test("\\n"));',
    ),
    (
        "sh",
        "{name}() {{\n"
        '\tlocal limit="${{1:-{limit}}}"  # of {name}, in {unit}\n'
        "\tawk -F'\\t' -v l=\"$limit\" '$2 <= l {{ print \"{key}\" $1 }}'\n}}\n",
        "printf '%s\\n' \"$({name} {limit})\" | sed 's/\\\\/ \\/ /g'  # {unit}",
    ),
)


def refactoring(index: int) -> PlannedTask:
    """Return task `index`: rename a function; if 3 divides `index`, a file has changed."""
    values = SampleValues(f"refactoring-{index}")
    tools = tuple(values.draw.sample(_TOOLS, len(_TOOLS)))
    builder = TaskBuilder("refactoring", index, tools, _CHANGING)
    ending, definition, caller = values.draw.choice(_LANGUAGES)
    old, new = (f"{word}_{values.number(10, 99)}" for word in values.draw.sample(_WORDS, 2))
    known = {"limit": values.number(2, 90), "unit": values.city(), "key": values.sku()}
    paths = [f"src/{values.sku()}.{ending}", f"src/{values.sku()}-use.{ending}"]
    texts = [
        definition.format(name=old, **known),
        f"{caller.format(name=old, **known)}\n{values.topic()}\n",
    ]
    reads = [PlannedCall("read_file", {"path": path}) for path in paths]
    changed = "".join(f"\t{line}\n" for line in texts[0].splitlines())
    versions = [CannedOutcome(texts[0]), CannedOutcome(changed)]
    builder.ends("read_file", {"path": paths[0]}, *versions)
    builder.ends("read_file", {"path": paths[1]}, CannedOutcome(texts[1]))
    builder.step(*reads)
    first, second = (_edit(path, text, old, new) for path, text in zip(paths, texts, strict=True))
    if index % 3 == 0:
        _change_meanwhile(builder, first, reads[0], texts[0])
        first = _edit(paths[0], changed, old, new)
        texts[0] = changed
    builder.change(first, second, needs=texts)
    return _run_tests(builder, values, (old, new), paths)


def _edit(path: str, text: str, old: str, new: str) -> PlannedCall:
    """Replace every line that has the old name."""
    edits: list[JsonValue] = [
        {"old_line": line, "new_line": line.replace(old, new)}
        for line in text.splitlines()
        if old in line
    ]
    return PlannedCall("edit_file", {"path": path, "edits": edits})


def _change_meanwhile(
    builder: TaskBuilder, edit: PlannedCall, read: PlannedCall, text: str
) -> None:
    """Let the first edit fail because the file has changed; the model must read it again."""
    problem = f"{read.arguments['path']} was changed since it was read: read it again"
    failed = builder.ends(edit.name, edit.arguments, CannedOutcome(problem, fails=True))
    builder.step(failed, needs=[text])
    builder.step(read, needs=[problem])


def _run_tests(
    builder: TaskBuilder, values: SampleValues, names: tuple[str, str], paths: list[str]
) -> PlannedTask:
    """Add the test run and finish the task; the answer must contain the id of the test run."""
    suite, run = f"tests-{values.sku()}", values.code("RUN")
    result: JsonObject = {"run": run, "failed": 0}
    builder.step(builder.returns("run_tests", {"suite": suite, "verbose": False}, result))
    old, new = names
    text = (
        f"Rename {old} to {new} in {paths[0]} and {paths[1]}: read both files, then edit each with "
        "one call that replaces every line with the old name, whole and in order, without its line "
        "end, and no other line. If a file has changed meanwhile, read it again. Then run the "
        f"suite {suite}, not verbose. Tell me the references of the edits and the run of the tests."
    )
    return builder.done(text, ExpectedEnd((run,)))
