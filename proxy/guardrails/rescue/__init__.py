"""Find the tool calls in text that a model wrote, while it arrives."""
