from temper_evals.scenarios.ordering import ordered


def test_an_ordered_task_states_the_order_in_the_temper_field_and_in_the_user_message() -> None:
    task = ordered(1)
    assert task.request(0)["temper"] == {
        "workflow": {
            "required_steps": ["read_page", "send_message"],
            "terminal_tools": ["cancel_order"],
        }
    }
    assert "Before that" in task.user
