"""One module per group of endpoints; the table of routes is closed."""
