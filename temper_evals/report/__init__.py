"""Shows results: `terminal` prints them, `table` has Markdown and JSON, and `page` is HTML.

`plots` draws the images of the page, `markdown` writes tables, and `comparison` compares two
evaluations. Help, harm, cost and ceiling are always shown together.
"""
