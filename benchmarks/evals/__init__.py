"""Evidence: `temper eval` with other proxies as further arms, and the page with its results.

`proxies` starts the proxies, `publishing` makes the runs, and `evidence` writes docs/evidence.md.
`thresholds` contains the goals of the first edition of this page, and `goals` those of the second
edition. All of them were fixed before the runs. `replies` sends recorded replies to all proxies.
"""
