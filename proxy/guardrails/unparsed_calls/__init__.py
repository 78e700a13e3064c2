"""Tells a call in a syntax that no reader knows from an answer; nothing is ever promoted from one.

`recognition` is the rule and whose words they are, `reading` reads a text as marks, keys and values
until something is none of them, and `words` are those that marks of calls are made of.
"""
