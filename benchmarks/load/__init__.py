"""Load: what Temper and its peers cost, measured against a backend that costs next to nothing."""
