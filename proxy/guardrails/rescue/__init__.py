"""Find the tool calls in text that a model wrote, while it arrives.

`scanner` separates calls from prose: it finds where a call begins, and a `syntax` reads it to its
end. `modes` are the states of the scanner and the openings of calls; `record` keeps its decisions
and reports them as `findings`. After a refused or broken call, `siblings` objects to later calls.
`formats` is the table of marks, with a row for each format of a call; `marks` recognizes them in
text. `registry` builds a syntax from the row and the reader of its shape in `syntaxes/`. These read
`values/`, and calls in `rows`. `unnamed` completes calls with arguments that have no key,
`swallowed` reads calls that an engine's parser took for the name or a value of another call, and
`stray` removes marks that belong to no call.

The table `provenance` decides whether the model meant a call that the scanner reports. The facts
come from `surroundings` and `markup` (code, quotations, JSON documents, elements), which give the
`position` of the call, from `examples` (words that only show it) and `copies` (texts that the model
had read). `guardrails.call_facts` adds the text after the call and joins the facts.
"""
