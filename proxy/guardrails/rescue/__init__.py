"""Find the tool calls in text that a model wrote, while it arrives.

Scanning: `scanner` finds the beginning of a call, and a `syntax` reads it to its end. `modes` has
the states of the scanner and the openings of calls; `record` stores its decisions and reports them
as `findings`. After a refused or broken call, `siblings` decides whether later calls may count.

Formats: `formats` is the table of marks, with one row for each format of a call, and `marks`
recognizes the marks in text. `registry` builds a syntax from a row and the reader of its shape in
`syntaxes/`. The readers read values with `values/`, and successive calls with `rows`.

Corrections: `unnamed` adds the missing names of arguments. `swallowed` reads calls that an engine's
parser mistook for the name or a value of another call. `stray` removes marks outside of calls.

Decision: the table `provenance` decides whether the model meant a call. Its facts come from
`surroundings` and `markup` (code, quotations, JSON documents, elements), which give the `position`
of the call, from `examples` (words that present it as an example) and from `copies` (texts from
which the model may have copied it). `guardrails.call_facts` adds the text after the call.
"""
