"""`temper doctor`: checks for common problems of local models and their servers.

`checks` defines the checks of this machine and of the tool servers, and runs all checks in order
against a `target`. The other checks are in `server`, `clients` and `exchanges`; those in
`exchanges` generate replies. Each check returns a finding. `report` prints the findings, writes a
bug report, and builds the stored measurements. `versions` reports the versions of Temper, Python
and the engine. With --cache, `prompt_cache` analyzes a recording instead.
"""
