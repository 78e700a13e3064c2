from temper_evals.scenarios.ordering import ordered


def test_the_required_order_is_in_the_extension_and_in_the_users_text() -> None:
    task = ordered(1)
    assert task.request(0)["temper"] == {
        "workflow": {
            "required_steps": ["read_page", "send_message"],
            "terminal_tools": ["cancel_order"],
        }
    }
    assert "Before that" in task.user
