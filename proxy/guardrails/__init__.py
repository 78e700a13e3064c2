"""Judges one reply: finds the calls in it, checks them, and knows what to say about a bad one."""
