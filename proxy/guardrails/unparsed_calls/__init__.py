"""Distinguishes a call in an unknown syntax from an answer; it never becomes a call.

`recognition` has the rule, and compares the text with those that the model was given. `reading`
reads a text as marks, keys and values up to the first prose. `words` are the words in marks.
"""
