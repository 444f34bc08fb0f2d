"""What measured times say, and what they do not. Pure.

Enters: times, and figures of several rounds. Leaves: percentiles, whether a run was steady, whether
two runs differ, where a latency limit is reached. Imports nothing. Read first: histogram.py.
"""
