from temper_evals.report.markdown import markdown_table


def test_a_table_has_a_line_for_each_row_after_its_headings() -> None:
    assert markdown_table(("what", ""), [("runs", 7)]) == "| what |  |\n|---|---|\n| runs | 7 |\n"
    assert markdown_table(("what",), []) == "| what |\n|---|\n"
