"""Values as models write them, lenient where only one reading is possible, while they arrive.

`reader` reads one JSON value and calls the rest: `strings` with `escapes`, `scalars`, `runs` (many
members at once). `tag_values` is for values in tags, `cursor` the place reached in the text.
"""
