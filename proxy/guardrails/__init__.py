"""Checks a reply: finds its calls, validates them, and writes a nudge if the reply is rejected.

While a reply arrives:

- `reading` reads the reply. `reply_scanner` divides its text, with `reasoning`, `labels` and
  `rescue/`.
- `call_facts` collects the facts about each call in the text, and `reply_text` collects the text,
  including the messages in calls of the tool `respond`.

At the end of the reply:

- `review` returns the `verdict`, based on the `offer` (the tools and rules of the request, with
  `names` and `model_quirks`) and the `transcript` (the executed calls).
- `schemas/` checks arguments, `steps` checks the order of calls, and `grounding` finds invented
  values.
- `announcements/` recognizes announced calls, `unparsed_calls/` recognizes calls in unknown
  syntaxes, and `repetition` recognizes repeated results and calls. `executed_calls` decides which
  calls have run.
- `retry` chooses the next attempt, and `nudges` writes the messages for it.
- After an answer, `close_out` decides whether the model is asked for remaining work.

Before a request is sent, `history_repair/` repairs its history and removes reasoning, and
`tool_prompts/` describes tools in the prompt. `contents` reads and joins message contents.
"""
