"""Find the tool calls in text that a model wrote, while it arrives.

`scanner` keeps calls and prose apart; `modes` are what it may be doing, and the strings that a call
may begin with, `record` what of the reply counts and is reported as `findings`. A `syntax` is one
textual form of a call (`registry` lists all, from `syntaxes/` and `guardrails/formats`; they read
`values/`, calls in `rows`); `marks` are all that calls begin and end with.

Whose words they are: `provenance` is the table that decides; `copies` (from what the model had
read), `surroundings` and `markup` (in code, quoted, in a JSON document or an element), `examples`
(only shown) and `neighbours` (the calls before it and the words behind it) find what it asks for.
"""
