"""`temper doctor`: what somebody would look at who has debugged local models for years.

`checks` runs them in order against a `target`: those of this machine and of tool servers, which
stand there, those of the `server` and its `exchanges`, and those for one of the `clients`. Each
gives a finding; `report` shows them, packs them for a bug report, and keeps what was measured.
`versions` says which Temper this is.
"""
