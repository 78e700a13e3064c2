"""Finds the tool calls in the text of a model, while the text arrives.

Scanning: `scanner` finds the beginning of a call, and a `syntax` reads the call to its end. `modes`
defines the states of the scanner and the openings of calls. `record` stores the scanner's decisions
and reports them as `findings`. After a refused or broken call, `siblings` decides whether later
calls are accepted.

Formats: `formats` is the table of marks, with one row for each format of a call. `marks` recognizes
the marks in text. For each row, `registry` builds a syntax with the reader for this kind of format
in `syntaxes/`. The readers read values with `values/`, and consecutive calls with `rows`.

Corrections: `unnamed` adds the missing names of arguments. `swallowed` reads calls that an engine's
parser mistook for the name or a value of another call. `stray` removes marks outside of calls.

Decision: the table in `provenance` decides whether the model meant a call, from these facts:

- the `position` of the call in code, quotations, JSON documents and elements, which `surroundings`
  and `markup` track;
- words before the call that present it as an example (`examples`);
- earlier texts from which the model may have copied the call (`copies`);
- the text after the call, which `guardrails.call_facts` adds.
"""
