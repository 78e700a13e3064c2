"""Prints results: `terminal` for a window, `table` as Markdown and JSON, and `page` as HTML.

`plots` draws the images of the page, `markdown` writes tables, and `comparison` compares two
evaluations. Help, harm, cost and ceiling are always shown together.
"""
