"""The cost of Temper and of other proxies, measured in front of a very cheap backend."""
