"""What an attached segment says at one instant, as values; and what happened between two.

Enters: the segment, and the time. Leaves: a `Sample`, an `EngineStatus`; rates, differences and
percentiles. Imports `ringbatch.shm` alone; whoever shows an engine imports it. Read first:
sample.py.
"""
