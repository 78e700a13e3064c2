"""Keeps a conversation inside the window; a pure function of the history."""
