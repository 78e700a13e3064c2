"""The tiny model: a language model of a million parameters that this project trained itself.

It knows the tools in `tools` with the made-up `values`, and nothing else. `tasks` are what it is
asked, in training and in measuring; `chat_template` is how it reads a conversation, and `shipped`
finds its file. The training is in benchmarks/tiny.
"""
