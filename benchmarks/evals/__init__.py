"""Evidence: `temper eval` with other proxies as arms, and the page with its results.

`proxies` starts the proxies, `publishing` makes the runs, and `evidence` writes docs/evidence.md.
`thresholds` and `goals` are the goals of the first and the second edition of this page; they were
fixed before the runs. `replies` sends recorded replies to all proxies.
"""
