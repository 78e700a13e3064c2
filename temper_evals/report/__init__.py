"""Shows results: `table` as text, `terminal` to fit a window, `plots` as images, `page` as HTML.

`markdown` writes tables, and `comparison` compares two evaluations. Help, harm, cost and ceiling
are always shown together.
"""
