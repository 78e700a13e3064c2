"""Find the tool calls in text that a model wrote, while it arrives.

`scanner` separates calls from prose; `modes` are its states and the openings of calls; `record`
decides what counts and reports it as `findings`. `formats` is the table of all marks, with a row
for each format of a call; `marks` recognizes them in text. A `syntax` reads a format; `registry`
builds it from the row and the reader of its shape in `syntaxes/`. These read `values/`, and calls
in `rows`. `unnamed` completes calls with arguments whose keys only the tools can tell, `swallowed`
reads calls in the values of others, and `stray` removes marks that belong to no call.

Whose words a call is, the table `provenance` decides. `copies` (repeated from what the model had
read), `surroundings` and `markup` (in code, quoted, in a JSON document or an element), `examples`
(only shown) and `neighbours` (the calls before it and the words after it) supply the facts.
"""
