"""The front half of a request: prepare it, listen to replies, review them, ask again."""
