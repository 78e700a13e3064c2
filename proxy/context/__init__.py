"""Fits a conversation into the context window; a pure function of the history.

- `compaction`: the interface of the strategies; `replay` implements them
- `budget`: the number of tokens available for a prompt
- `units`: groups the messages that must stay together
- `shortening`, `digest`: short texts that replace old results and removed messages
- `tokens`: exact and estimated token counts, from `message_sizes`, `rough_tokens` and the rates
  that `calibration` learns
- `lexical_search`: ranks short texts, such as tools, by the words of a query
- `prefix`: explains why an engine cannot reuse the cache of the previous prompt
"""
