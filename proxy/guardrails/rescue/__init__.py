"""Find the tool calls in text that a model wrote, while it arrives.

`scanner` separates calls from prose; `modes` are its states and the openings of calls; `record`
decides which calls count and reports them as `findings`. `formats` is the table of all marks, with
a row for each format of a call; `marks` recognizes them in text. A `syntax` reads a format;
`registry` builds it from the row and the reader of its shape in `syntaxes/`. These read `values/`,
and calls in `rows`. `unnamed` completes calls with arguments whose keys only the tools can tell,
`swallowed` reads calls in the values of others, and `stray` removes marks that belong to no call.

The table `provenance` decides whether the model meant a call. The facts come from `surroundings`
and `markup` (code, quotations, JSON documents, elements), which give the `position` of the call,
from `examples` (words that only show it), `siblings` (the calls before it) and `copies` (texts that
the model had read).
"""
