"""Measures how Temper delays or changes replies without errors, compared with direct requests."""
