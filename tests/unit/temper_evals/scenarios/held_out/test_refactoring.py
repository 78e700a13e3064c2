from temper_evals.scenarios.held_out.refactoring import refactoring
from tests.unit.temper_evals.players import follow_plan, play


def test_each_edit_replaces_a_line_that_the_model_has_read() -> None:
    for index in range(60):
        task = refactoring(index)
        world, messages = play(task, follow_plan)
        lines = {
            line
            for message in messages
            if message.get("role") == "tool"
            for line in str(message["content"]).splitlines()
        }
        for change in world.changes:
            edits = change.arguments["edits"]
            assert isinstance(edits, list)
            for edit in edits:
                assert isinstance(edit, dict)
                assert edit["old_line"] in lines
                assert edit["new_line"] != edit["old_line"]


def test_a_changed_file_must_be_read_again_before_editing() -> None:
    for index in range(0, 60, 3):
        task = refactoring(index)
        world, messages = play(task, follow_plan)
        assert any("was changed since" in str(message["content"]) for message in messages)
        failed = next(call for call in task.calls if call.name == "edit_file")
        assert failed not in world.changes
        assert len(world.changes) == 2


def test_edited_texts_have_to_be_escaped_in_json_and_are_in_three_languages() -> None:
    texts = "".join(str(refactoring(index).setting.outcomes) for index in range(30))
    assert all(mark in texts for mark in ('\\"', "\\\\", "\\t", "def ", "function ", "awk "))
