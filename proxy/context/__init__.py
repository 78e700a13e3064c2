"""Fits a conversation into the context window; a pure function of the history.

- `compaction`: the contract of the strategies, which are in `replay`
- `budget`: the room for a prompt
- `units`: messages that must stay together
- `shortening`, `digest`: the replacements of shortened and removed messages
- `tokens`: exact and estimated token counts, from `message_sizes`, `rough_tokens` and the rates
  that `calibration` learns
- `prefix`: the reason why a prompt does not continue the previous one
"""
