"""Fits a conversation into the context window; a pure function of the history.

- `compaction`: the contract of the strategies, which are in `replay`
- `budget`: the room for a prompt
- `units`: messages that must stay together
- `shortening`, `digest`: the replacements of shortened and removed messages
- `tokens`: exact and estimated token counts, from `message_sizes`, `rough_tokens` and the rates
  that `calibration` learns
- `lexical_search`: ranks short texts, such as tools, by the words of a query
- `prefix`: the reason why a prompt does not continue the previous one
"""
