"""Search for the settings that serve a model best on a host, with few measurements. Pure.

Enters: choices for each setting, and the result of each trial. Leaves: the next trial, and the best
settings with an estimate of each value beside them. Imports nothing. Read first: search.py.
"""
