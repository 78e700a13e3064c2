"""Reads values as models write them, while they arrive; tolerant if the meaning is unambiguous.

`reader` reads one JSON value with `strings` and `escapes`, `scalars`, and `runs` (many members at
once). `tag_values` reads values in tags. `cursor` is the position in the text.
"""
