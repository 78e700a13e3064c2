"""Temper under deterministic simulation: a virtual clock and a network in memory, from one seed.

Theory of operation
-------------------
Temper runs unchanged on an event loop whose clock jumps to the next timer instead of waiting
(`loop`), and whose connections are pairs of queues (`network`).
Delays, the number of bytes that arrive together, requests and faults are random, but drawn from
generators with the seed. So a seed always gives the same events in the same order, and a failure
can be replayed and shrunk.

    clients (benchmarks.faults) --> network --> Temper --> network --> engines (benchmarks.faults)
                                       ^                      ^
                                       +-- world: crashes, stalls, reloads, pressure on the queue

Modules of a run:

- `scenario` draws the requests, the events and the settings from the seed.
- `world` runs a scenario; `exchanges` and `dialects` send requests and read responses that
  `benchmarks.faults` does not know, such as those of the Responses API.
- `engines` answers, and stores the prompts that it received.
- `invariants` checks the state of Temper several times per second.
- `temper` starts and kills Temper, `workers` its worker processes, `children` its llama-servers.
- `slots` has the prompt caches of the llama-servers, and `store` is the Valkey server of the
  workers; `threads` lets functions wait for the Valkey server.
- `disk` fails, and loses writes in a power cut. `losses` checks that Temper loses data only after
  such a fault, and logs the loss.
- `planted` has defects that are written into a copy of `proxy`; the simulation must find them.

All simulated processes share the event loop. The context variable `HOST` names the process of each
callback. To kill a process, the loop stops running its callbacks, and the network resets its
connections.

`clock` replaces the clocks of Python. It must run before `proxy` is imported, because `proxy`
stores functions such as `time.monotonic` as defaults. So a simulation needs a separate process:

    python -m tests.simulation --seeds 200
    python -m tests.simulation --seed 17 --trace       the events of one seed
    python -m tests.simulation --seed 17 --shrink      the smallest part that still fails
"""
