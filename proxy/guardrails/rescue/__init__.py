"""Find the tool calls in text that a model wrote, while it arrives.

`scanner` keeps calls and prose apart; `modes` are what it may be doing, `record` what of the
reply counts, `report` what it has to say, as `findings`. A `syntax` is one textual form of a call
(`registry` lists all `syntaxes/`, which read `values/`); `openings` are the strings one may begin
with, `attempt` tries those that share one.

Whose words they are: `provenance` (copied from what the model had read), `surroundings` (in code,
quoted), `addressed` and `announcements` (only shown), `documents` (part of a JSON document),
`following` (words behind it), `siblings` and `rows` (calls before and beside it), `halves` (cut
off), `call_marks` (another call within).
"""
