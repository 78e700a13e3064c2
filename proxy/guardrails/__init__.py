"""Checks a reply: finds its calls, validates them, and writes a correction if it is bad.

`reading` reads a reply while it arrives. `reply_scanner` divides its text (with `reasoning`,
`labels` and `rescue/`), `call_facts` collects the facts about each call in the text, and
`reply_text` collects the text itself, with the messages of `respond`. A reply is judged against the
`offer` (with `names` and `model_quirks`). `review` gives the `verdict`: arguments by `schemas/`,
`announcements/` for prose that only announces, `unparsed_calls/` for calls in unknown syntaxes,
`steps` for calls at the wrong time, based on the `transcript`. `repetition` finds replies that
repeat results or executed calls, `executed_calls` decides which calls have run, and `grounding`
finds values that occur nowhere in the conversation. `retry` names the next attempt and `nudges` has
its messages. `close_out` decides whether a text answer may have come too early.

Before a request is sent, `history_repair/` repairs its history and removes reasoning, and
`tool_prompts/` describes tools in the prompt. `contents` reads and joins message contents.
"""
