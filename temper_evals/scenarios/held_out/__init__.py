"""Families of a second author, who has not read how Temper repairs: for publication only.

`calendar` finds a time that suits everyone, `refactoring` edits lines that must match, `travel`
undoes a booking if another one fails, and `triage` chooses among near synonyms or does nothing.
"""
