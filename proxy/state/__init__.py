"""State that outlives a request, a process or a replica: one module for each kind of storage.

A storage that fails never fails an answer.

- `claims`: the interface of a store that replicas share, and the claims that let one replica answer
  a request with an idempotency key while the others wait. `valkey` implements the store; `sealing`
  encrypts its contents
- `memory_responses`: stored responses (`previous_response_id`) in this process
- `shared_responses`: the same in a store that replicas share
- `responses_file`: the same in a SQLite file; `responses_table` has its tables and queries
"""
