"""Evidence: `temper eval` with other proxies as arms, and the page with its results.

`proxies` starts the proxies, `publishing` makes the runs, `thresholds` and `goals` are the goals
that were fixed before the runs, and `evidence` writes docs/evidence.md. `replies` plays recorded
replies to all proxies.
"""
