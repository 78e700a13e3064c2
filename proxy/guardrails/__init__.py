"""Judges one reply: finds its calls, checks them, and words the objection to a bad reply.

`reading` reads a reply while it arrives: `reasoning` apart from prose (by `labels` if the model was
asked for them), calls written as text by `rescue/`, and the message of `respond`. `offer` is what
the reply is judged against (with `names` and `model_quirks`). `review` gives the `verdict`:
arguments by `schemas/`, `announcements/` for prose that only announces, `unparsed_calls/` for calls
that no reader knows, `steps` for calls at the wrong time, based on the `transcript`.
`repetition` finds replies that repeat results or executed calls, `executed_calls` decides which
calls have run, and `grounding` finds values that occur nowhere in the conversation. `retry` names
the next attempt and `nudges` has its words. `close_out` decides whether a text answer may have come
too early.

Before a request is sent, `history_repair/` repairs its history and removes thoughts, and
`tool_prompts/` describes tools in the prompt. `contents` reads and joins message contents.
"""
