"""Load: the cost of Temper and other proxies, measured in front of a very cheap backend."""
