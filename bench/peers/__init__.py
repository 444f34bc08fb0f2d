"""Servers that scenarios start: ringbatch, other frameworks, and the models without a server."""
