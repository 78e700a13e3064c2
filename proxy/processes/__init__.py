"""Servers that Temper starts, supervises and stops.

`process` is one child process; `parent_death` ends it together with Temper. `launch` plans a
llama-server from the metadata that `model_file` reads; `llama_server` starts it, downloads models
and explains failures. `start_progress` reads its progress, and `embedded` is the server from PyPI.
`hub` downloads models for a server that cannot, and `model_caches` lists the downloaded models.
`pdf_text` is a separate process that reads PDF files of clients.

`supervisor` restarts one server as `restarts` decides, and `managed` is the backend of a supervised
server. `slot_cache` saves the prompt caches of a server that is stopped, in the `slot_files` of a
folder. `fleet` runs several servers that do not all fit into memory, as `swapping` decides.

`temper_server` runs `temper serve` itself as a child process.
"""
