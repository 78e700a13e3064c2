"""What outlives this process, or is shared by several: each module is one place to keep it.

Optional: without it everything is kept in memory, where the rooms below define what is kept and how
long. A place that fails never fails an answer.

- `store`: what a store that several Tempers share has to offer; `valkey` is one, in such a server;
  `sealing` hides there what is kept from everybody else
- `claims`: who answers a keyed request, and who waits for that answer
- `shared_responses`: responses to go on from, in such a store
- `responses_file`: responses to go on from, in a SQLite file; `responses_table` is what is in it
- `tried_models`: what `temper doctor` measured of models, a file for each in the cache folder
- `opening_files`: opens such a file, and says in one sentence why one cannot be used
"""
