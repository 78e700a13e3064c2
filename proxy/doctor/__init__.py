"""`temper doctor`: what somebody would look at who has debugged local models for years.

`checks` runs them in order against a `target`: those of `machine`, `server` and `exchanges`, and
those for one of the `clients`. Each gives a `finding`; `report` shows them, `bundle` packs what
a bug report needs, and `tried` keeps what was measured of a model.
"""
