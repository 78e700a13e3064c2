"""Wire languages, both directions: bytes to conversation and back. No I/O.

One folder for each language. What they share:

- `dialect`: the contract of a language that clients speak
- `answer_blocks`: cuts answers into texts, thoughts and calls
- `raw_json`: bodies as JSON objects, and values with the bytes they were written in
- `wire_schema`, `temper_options`: how requests are checked, and what they say to Temper itself
- `requested_tools`: takes out what asks for tools of the operator
- `field_table`: what happens to each name of a language
- `foreign_history`: writes a history in the language of backends
- `lenient_json`: what others have written, and what replies have cost
- `engine_language`: what writers for engines with a language of their own have in common
- `sse`, `lines`: cut streams into events, and into lines
"""
