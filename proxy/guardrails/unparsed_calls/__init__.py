"""Recognizes a reply that is a call in an unknown syntax; such a reply is rejected, not converted.

`recognition` decides, and compares the reply with the texts of the prompt. `reading` reads a text
as marks, keys and values, and stops at the first prose. `words` lists the words that occur in
marks.
"""
