"""HTTP out: how a question is put to an engine, and what its answers and errors mean."""
