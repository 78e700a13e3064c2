"""What outlives this process, or is shared by several: each module is one place to keep it.

A place that fails never fails an answer.

- `claims`: the contract of a store that replicas share; who answers a keyed request, and who waits
  for that answer. `valkey` implements it; `sealing` encrypts what is kept there
- `memory_responses`: responses to go on from, in this process
- `shared_responses`: the same in a store that replicas share
- `responses_file`: the same in a SQLite file; `responses_table` has its tables and queries
"""
