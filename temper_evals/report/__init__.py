"""Shows results: `table` in words, `terminal` fits a window, `plots` are pictures, `page` is HTML.

`markdown` writes tables, `comparison` is of two evaluations. Help, harm, cost and ceiling always
stand together.
"""
