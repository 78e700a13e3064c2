"""Families of a second author, who has not read how Temper repairs: for publication only.

`calendar` looks for a time that suits all, `refactoring` edits lines that have to match, `travel`
undoes what came to nothing, and `triage` chooses among near synonyms, or leaves things alone.
"""
