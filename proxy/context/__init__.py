"""Keeps a conversation inside the window; a pure function of the history.

`compaction` is the contract, `tiered` the strategy (`sliding` another one, for comparison): it
asks `replay` which parts of the history have been given up, decided again from its beginning.
`budget` says how much room there is, `units` what may not be torn apart, `shortening` and
`digest` what stands in the place of what was given up (`salience`: which lines stay; `text_cache`
spares writing them again), `overflow` what is said where nothing helps.

What things cost: `tokens` knows it exactly or estimates, from `rough_size` and `rough_tokens`
(`message_sizes` remembers), by what `prompt_totals` and `calibration` have taught. `prefix` finds
what broke a prompt cache.
"""
