"""Distinguishes an announcement ("I'll check the weather.") from an answer, in sixteen languages.

`recognition` decides. With `matching`, it searches the last sentences of a reply for the phrases of
each language (`cues`). The phrases of a language are a file in `config/announcements`.
"""
