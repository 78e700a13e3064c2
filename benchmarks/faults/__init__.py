"""Fault injection: a soak with a faulty backend and faulty clients, and kills under load."""
