"""What outlives this process, or is shared by several: each module is one place to keep it.

A place that fails never fails an answer.

- `store`: what a store that several Tempers share has to offer; `valkey` is one, in such a server;
  `sealing` hides there what is kept from everybody else
- `claims`: who answers a keyed request, and who waits for that answer
- `memory_responses`: responses to go on from, in this process
- `shared_responses`: the same in a store of several Tempers
- `responses_file`: the same in a SQLite file, or in one sentence why it cannot be used;
  `responses_table` is what is in it
- `tried_models`: what `temper doctor` measured of models, a file for each in the cache folder
"""
