"""Values as models write them, lenient where only one reading is possible, while they arrive.

`reader` reads one JSON value and calls the rest: `strings` with `endings` (does this quotation mark
end it?), `doubts` (how far can it be trusted?) and `escapes`; `scalars`, `containers`, `runs` (many
members at once) and `comments`. In tags: `bare_text`, `closing_pairs`, `line_ends`, `entities`.
`cursor` is the place reached in the text, `literals` finds fixed strings in it, `written` is what
a value can turn out to be.
"""
