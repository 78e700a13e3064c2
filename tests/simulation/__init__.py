"""Temper under deterministic simulation: a virtual clock and a network in memory, from one seed.

Theory of operation
-------------------
Temper runs unchanged on an event loop whose clock jumps to the next timer instead of waiting
(`loop`), and whose connections are pairs of queues (`network`).
All that is random comes from one generator: delays, the sizes in which bytes arrive, the requests,
and the faults. So a seed always gives the same events in the same order, and a failure can be
replayed and shrunk.

    clients (benchmarks.faults) --> network --> Temper --> network --> engines (benchmarks.faults)
                                       ^                      ^
                                       +-- world: crashes, stalls, reloads, pressure on the queue

`scenario` draws a run, `exchanges` are requests of clients that the soak does not have, `dialects`
reads their responses, `engines` stores the prompts, and `invariants` are sampled during the run.
`planted` has the faults that must be found.

Processes share the loop. The context variable `HOST` names the process of each callback, so that
one can be killed: the loop holds its callbacks, and the network resets its connections. `temper`
starts and kills Temper, `workers` are its workers, and `children` its llama-servers. `disk` fails,
and loses writes in a power cut; `losses` checks that only then something is lost, and logged.
`slots` are the prompt caches of the llama-servers. `store` is the Valkey server that workers share;
`threads` lets functions wait for it.

`clock` replaces the clocks of Python, and has to run before `proxy` is imported, because `proxy`
stores functions such as `time.monotonic` as defaults. So a simulation is a process of its own:

    python -m tests.simulation --seeds 200
    python -m tests.simulation --seed 17 --trace       the events of one seed
    python -m tests.simulation --seed 17 --shrink      the smallest part that still fails
"""
