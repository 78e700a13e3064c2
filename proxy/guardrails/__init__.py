"""Judges one reply: finds the calls in it, checks them, and knows what to say about a bad one.

`reading` reads a reply while it arrives: `reasoning` apart from prose (by `labels`, where the model
was asked for them), calls as text by `rescue/`, the message of `respond`. `offer` is what it is
judged against (`names`, `model_quirks`), `review` gives the `verdict`: arguments by `schemas/`,
`announcements/` for prose that only announces, `unparsed_calls/` for calls that no reader knows,
`order` with `steps` for calls at the wrong time, after what `transcript` reads in the history.
`retry` names the next attempt and `nudges` its words. `close_out` tells whether an end in text may
be too early.

Before a request goes out `history_repair/` mends its history and says which thoughts go back, and
`tool_prompts/` describes tools in the prompt by one of the `formats/`; `contents` reads and joins
what messages say.
"""
