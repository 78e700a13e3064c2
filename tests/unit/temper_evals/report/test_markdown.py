from temper_evals.report.markdown import markdown_table


def test_markdown_table_returns_headings_and_a_line_for_each_row() -> None:
    assert markdown_table(("what", ""), [("runs", 7)]) == "| what |  |\n|---|---|\n| runs | 7 |\n"
    assert markdown_table(("what",), []) == "| what |\n|---|\n"
