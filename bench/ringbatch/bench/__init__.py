"""Implementation of `ringbatch bench`: it sends requests as clients do, and reports the figures."""
