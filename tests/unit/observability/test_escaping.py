from proxy.observability.escaping import escaped


def test_printable_text_of_any_script_is_left_alone() -> None:
    assert escaped("naïve 日本語 🙂") == "naïve 日本語 🙂"


def test_what_could_steer_a_terminal_or_begin_a_line_is_shown() -> None:
    assert escaped("a\nb\x1b[31m\u202e\\") == r"a\nb\x1b[31m\u202e\\"
