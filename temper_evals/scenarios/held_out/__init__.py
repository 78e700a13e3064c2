"""Families by a second author who had not read Temper's rules, for published figures only.

In `calendar`, the model finds a time that suits everyone. In `refactoring`, it edits lines that
must match exactly. In `travel`, it cancels a booking if a second booking fails. In `triage`, it
chooses among tools with similar names, or does nothing.
"""
