"""State that outlives a request, a process or a replica: one module for each kind of storage.

If a storage fails, requests are still answered.

- `claims`: the interface of a store that replicas share, and the claims by which one replica
  answers a request with an idempotency key while the others wait. `valkey` implements the store;
  `sealing` encrypts its contents
- `memory_responses`: stores responses (for `previous_response_id`) in this process
- `shared_responses`: stores responses in a store that replicas share
- `responses_file`: stores responses in a SQLite file; `responses_table` has its tables and queries
"""
