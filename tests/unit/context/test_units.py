from proxy.context.units import Unit, units_of
from proxy.conversation.json import JsonObject
from tests.fakes.histories import call, called, history, result, said


def units(*messages: JsonObject) -> list[Unit]:
    return list(units_of(history(*messages)))


def test_calls_and_their_results_form_one_unit() -> None:
    (unit,) = units(called(call("a"), call("b")), result("b", "2"), result("a", "1"))
    assert unit.is_group
    assert unit.indexes == [0, 1, 2]
    assert [(result.index, result.call.id, result.message.text) for result in unit.results] == [
        (1, "b", "2"),
        (2, "a", "1"),
    ]


def test_a_result_after_another_message_belongs_to_its_call() -> None:
    first, second = units(called(call("a")), said("assistant", "Wait"), result("a"))
    assert (first.indexes, first.is_group) == ([1], False)
    assert (second.indexes, second.number) == ([0, 2], 0)


def test_calls_form_no_unit_if_one_of_them_has_no_result() -> None:
    assert units(called(call("a"), call("b")), result("a")) == []


def test_no_unit_contains_a_system_message_an_orphaned_result_or_the_first_user_message() -> None:
    everything = [
        said("system", "Be brief."),
        said("developer", "Be kind."),
        said("user", "First"),
        result("z"),
        said("user", "Second"),
        said("system", "Hurry."),
    ]
    assert [unit.indexes for unit in units(*everything)] == [[4]]


def test_repeated_ids_refer_to_the_latest_call() -> None:
    again = [called(call("0")), result("0"), called(call("0"), call("0")), result("0"), result("0")]
    assert [(unit.indexes, unit.number) for unit in units(*again)] == [([0, 1], 0), ([2, 3, 4], 1)]
    never = [called(call("0")), called(call("0")), result("0")]
    assert [unit.indexes for unit in units(*never)] == [[1, 2]]
