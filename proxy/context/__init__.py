"""Keeps a conversation inside the window; a pure function of the history.

`compaction` is the contract. The strategies are in `replay`, which decides from the beginning of a
history which parts of it have been given up. `budget` says how much room there is, `units` what may
not be torn apart, `shortening` and `digest` what stands in the place of what was given up.

What things cost: `tokens` knows it exactly or estimates, from `message_sizes` and `rough_tokens`,
by what `calibration` has learnt. `prefix` finds what broke a prompt cache.
"""
