"""Tells a call in an unknown syntax from an answer; it never becomes a call.

`recognition` has the rule and considers whose words they are. `reading` reads a text as marks, keys
and values until something is none of them. `words` are the words that marks of calls consist of.
"""
