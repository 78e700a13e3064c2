"""Servers that Temper starts, supervises and stops.

`process` is one child process; `parent_death` kills it when Temper dies. `launch` builds the
command line of a llama-server, and `model_file` reads the metadata of its model. `llama_server`
starts the server, downloads models and explains failures. `start_progress` parses the progress of a
start. `embedded` is the llama-server from PyPI; it cannot download models, so `hub` does this.
`model_caches` lists the downloaded models. `pdf_text` reads PDF files of clients in a separate
process.

`supervisor` restarts one server; `restarts` decides when. `managed` is the backend of a supervised
server. `slot_cache` saves the prompt caches of a server before it stops; `slot_files` names and
removes these files. `fleet` runs several servers that do not all fit into memory; `swapping`
decides which of them are loaded.

`temper_server` runs `temper serve` itself as a child process.
"""
