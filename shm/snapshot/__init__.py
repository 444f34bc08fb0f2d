"""Snapshots of an attached segment as values, and differences between two.

Enters: the segment, and the time. Leaves: a `Sample`, an `EngineStatus`; rates, differences and
percentiles. It imports `ringbatch.shm` alone; rooms that show an engine import it. Read first:
sample.py.
"""
