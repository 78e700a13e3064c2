"""Temper: an OpenAI-compatible proxy that makes tool calling with local models reliable."""
