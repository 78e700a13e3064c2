"""How long tests wait for what should come at once, so that none hangs for ever.

Nothing is measured by it: however busy a machine is, what has not come by then never will. What
is measured goes by a clock of the test's own, or by the order in which things happen.
"""

PATIENCE_SECONDS = 300.0
