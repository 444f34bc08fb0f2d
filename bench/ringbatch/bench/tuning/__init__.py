"""Which settings serve a model best on a host, found with few measurements. Pure.

Enters: choices for each setting, and what each trial came to. Leaves: the next trial, and the best
settings with what each value comes to beside them. Imports nothing. Read first: search.py.
"""
