"""Evidence: `temper eval` with other proxies as arms, and the page that is written of it.

`proxies` starts them, `publishing` makes the runs, `thresholds` and `goals` are what was promised
before, and `evidence` writes docs/evidence.md.
"""
