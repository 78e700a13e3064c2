"""Ollama's own chat language, spoken by one backend; no client of ours speaks it."""
