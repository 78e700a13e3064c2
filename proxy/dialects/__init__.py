"""Wire languages, both directions: bytes to conversation and back. No I/O."""
