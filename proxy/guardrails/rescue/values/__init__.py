"""Reads the values that models write, from a stream; tolerates unambiguous errors.

`reader` reads one JSON value with `strings` and `escapes`, `scalars`, and `runs` (many members at
once). `tag_values` reads values in tags. `cursor` is the position in the text.
"""
