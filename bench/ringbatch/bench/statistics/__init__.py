"""Statistics of measured times, and their limits. Pure.

Enters: times, and figures of several rounds. Leaves: percentiles, whether a run was steady, whether
two runs differ, and the rate at which a latency limit is reached. Imports nothing. Read first:
histogram.py.
"""
