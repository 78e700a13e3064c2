"""Values as models write them, while they arrive; lenient if only one reading is possible.

`reader` reads one JSON value and uses the rest: `strings` with `escapes`, `scalars`, `runs` (many
members at once). `tag_values` is for values in tags, `cursor` is the position in the text.
"""
