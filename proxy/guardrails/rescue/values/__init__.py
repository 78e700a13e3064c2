"""Reads the values that models write, from a stream, and tolerates unambiguous errors.

`reader` reads one JSON value. It uses `strings` and `escapes`, `scalars`, and `runs`, which reads
many members at once. `tag_values` reads values in tags. `cursor` has the position in the text.
"""
