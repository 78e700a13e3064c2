"""The chat completions language, spoken by clients and by most backends."""
