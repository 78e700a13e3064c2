"""What memory there is, and what of a model fits into it.

It measures and calculates; what is done about it is decided above.
"""
