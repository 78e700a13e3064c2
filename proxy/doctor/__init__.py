"""`temper doctor`: checks for common problems of local models and their servers.

`checks` runs all checks in order against a `target`: this machine and the tool servers (defined
there), the `server`, `exchanges` with its model, and one of the `clients`. Each check returns a
finding. `report` prints the findings, writes a bug report, and stores the measurements. `versions`
reports the versions of Temper, Python and the engine. With --cache, `prompt_cache` examines a
recording instead.
"""
