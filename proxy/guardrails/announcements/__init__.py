"""Distinguishes an announcement ("I'll check the weather.") from an answer, in sixteen languages.

`recognition` judges a reply: `matching` looks for the `cues` of its languages in the last
sentences. The words of a language are a file in `config/announcements`.
"""
