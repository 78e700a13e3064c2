"""A small workspace of files and notes."""

from benchmarks.real.bed import TEXT, Need, Task, Tool, ToolSet, World, WrongInput, some, text_in
from proxy.conversation.json import JsonObject, JsonValue

_FILES: tuple[JsonObject, ...] = (
    {"path": "inbox/invoice-0423.pdf", "text": "Invoice 0423: 512 euros, due on 3 May."},
    {"path": "inbox/photo.jpg", "text": "(a picture)"},
    {
        "path": "docs/meeting.txt",
        "text": "Meeting of the project team. The deadline is 14 March. Ana writes the report.",
    },
    {"path": "docs/wifi.txt", "text": "The guest network is Maple, its password is blue-lantern."},
    {"path": "reports/q3.txt", "text": "Third quarter: revenue 84,300 euros, costs 61,000 euros."},
    {"path": "todo.txt", "text": "To be archived: docs/plan-2019.txt"},
    {"path": "docs/plan-2019.txt", "text": "The plan of 2019."},
)
_NOTES: tuple[JsonObject, ...] = (
    {"note_id": "n-31", "title": "Garden", "text": "Buy tulips."},
    {"note_id": "n-32", "title": "Recipe", "text": "Flour, eggs, milk."},
)
_FIRST_NOTE = 40


def _folder(path: str) -> str:
    return path.strip("/.").lower()


def _list_files(world: World, arguments: JsonObject) -> JsonValue:
    folder = text_in(arguments, "folder")
    paths = [str(row.get("new_path", row["path"])) for row in world.rows("files")]
    files = [path for path in paths if path.rpartition("/")[0].lower() == _folder(folder)]
    if not files:
        raise WrongInput(f"No folder {folder!r}. Folders: docs, inbox, reports.")
    return {"files": [*files]}


def _read_file(world: World, arguments: JsonObject) -> JsonValue:
    return str(world.row("files", "path", text_in(arguments, "path"), "Use list_files.")["text"])


def _move_file(world: World, arguments: JsonObject) -> JsonValue:
    folder = _folder(text_in(arguments, "folder"))
    file = world.row("files", "path", text_in(arguments, "path"), "Use list_files.")
    # the old path stays valid, so that a repeated call succeeds and is counted as repeated
    file["new_path"] = f"{folder}/{str(file['path']).rpartition('/')[2]}"
    return {"moved": file["path"], "new_path": file["new_path"]}


def _search_notes(world: World, arguments: JsonObject) -> JsonValue:
    query = text_in(arguments, "query")
    hint = f"No note with {query!r} in its title."
    notes = some([row for row in world.rows("notes", title=query) if "deleted" not in row], hint)
    return {"notes": [{"note_id": note["note_id"], "title": note["title"]} for note in notes]}


def _write_note(world: World, arguments: JsonObject) -> JsonValue:
    title, _ = text_in(arguments, "title"), text_in(arguments, "text")
    return {"note_id": f"n-{_FIRST_NOTE + world.next_number()}", "title": title}


def _delete_note(world: World, arguments: JsonObject) -> JsonValue:
    note = world.row("notes", "note_id", text_in(arguments, "note_id"), "Use search_notes.")
    note["deleted"] = True  # stays deletable, so that a repeated call succeeds and is counted
    return {"deleted": note["note_id"]}


WORKSPACE = ToolSet(
    "workspace",
    "You help the user with files and notes. Use the tools to do what the user asks for; answer "
    "directly when no tool is needed.",
    (
        Tool("list_files", "List the files in a folder.", {"folder": TEXT}, _list_files),
        Tool("read_file", "Read the text of a file.", {"path": TEXT}, _read_file),
        Tool(
            "move_file",
            "Move a file into a folder.",
            {"path": TEXT, "folder": TEXT},
            _move_file,
            has_effect=True,
        ),
        Tool(
            "search_notes",
            "Search the notes by title. Returns their ids.",
            {"query": TEXT},
            _search_notes,
        ),
        Tool(
            "write_note",
            "Write a new note.",
            {"title": TEXT, "text": TEXT},
            _write_note,
            has_effect=True,
        ),
        Tool(
            "delete_note",
            "Delete a note by its id.",
            {"note_id": TEXT},
            _delete_note,
            has_effect=True,
        ),
    ),
    {"files": _FILES, "notes": _NOTES},
    (
        Task(
            "List the folder inbox and move the invoice in it to the folder finance.",
            "chain",
            (
                Need("list_files", {"folder": "inbox"}),
                Need("move_file", {"path": "inbox/invoice-0423.pdf", "folder": "finance"}),
            ),
        ),
        Task(
            "Read docs/meeting.txt and write a note titled 'Deadline' with the date of the "
            "deadline.",
            "chain",
            (
                Need("read_file", {"path": "docs/meeting.txt"}),
                Need(
                    "write_note", {"title": "deadline", "text": ("14 march", "march 14", "03-14")}
                ),
            ),
        ),
        Task("Thank you, that was everything for today.", "none"),
        Task(
            "Search the notes for 'Garden' and delete the note that you find.",
            "chain",
            (
                Need("search_notes", {"query": "garden"}),
                Need("delete_note", {"note_id": "n-31"}),
            ),
        ),
        Task(
            "What does the file docs/wifi.txt say?",
            "single",
            (Need("read_file", {"path": "docs/wifi.txt"}),),
        ),
        Task(
            "List the folder reports, read the report in it, and write a note titled 'Revenue' "
            "with the revenue.",
            "chain",
            (
                Need("list_files", {"folder": "reports"}),
                Need("read_file", {"path": "reports/q3.txt"}),
                Need("write_note", {"title": "revenue", "text": ("84,300", "84300", "84.300")}),
            ),
        ),
        Task(
            "Read todo.txt and move the file that it names to the folder archive.",
            "chain",
            (
                Need("read_file", {"path": "todo.txt"}),
                Need("move_file", {"path": "docs/plan-2019.txt", "folder": "archive"}),
            ),
        ),
        Task("What is 15 plus 27? Answer with the number only.", "none"),
        Task(
            "List the files in the folder docs.",
            "single",
            (Need("list_files", {"folder": "docs"}),),
        ),
        Task(
            "Move docs/wifi.txt into the folder archive.",
            "single",
            (Need("move_file", {"path": "docs/wifi.txt", "folder": "archive"}),),
        ),
        Task(
            "Write a note titled 'Shopping' with the text 'Bread and cheese'.",
            "single",
            (Need("write_note", {"title": "shopping", "text": "bread and cheese"}),),
        ),
        Task(
            "Search the notes for 'Recipe'.", "single", (Need("search_notes", {"query": "recipe"}),)
        ),
        Task("Delete the note n-31.", "single", (Need("delete_note", {"note_id": "n-31"}),)),
        Task(
            "Read the file reports/q3.txt.",
            "single",
            (Need("read_file", {"path": "reports/q3.txt"}),),
        ),
        Task(
            'Write a note titled \'Config\' with exactly this text: {"mode": "fast", "retries": 3}',
            "trap",
            (Need("write_note", {"title": "config", "text": '"retries": 3'}),),
        ),
        Task(
            "Delete the notes n-31 and n-32.",
            "trap",
            (
                Need("delete_note", {"note_id": "n-31"}),
                Need("delete_note", {"note_id": "n-32"}),
            ),
        ),
        Task(
            "Read docs/meeting.txt. Only if the deadline is in April, write a note titled 'April'.",
            "trap",
            (Need("read_file", {"path": "docs/meeting.txt"}),),
        ),
        Task(
            "Search the notes for 'Recipe' and delete the note that you find.",
            "chain",
            (
                Need("search_notes", {"query": "recipe"}),
                Need("delete_note", {"note_id": "n-32"}),
            ),
        ),
        Task("Rewrite this sentence in the past tense: I read the file and write a note.", "none"),
        Task("What is a PDF file? Answer in one sentence.", "none"),
    ),
)
