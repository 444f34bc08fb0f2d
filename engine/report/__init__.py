"""Reading a running engine from outside: `ringbatch status` and `ringbatch models`.

Enters: the segment. Leaves: text. Imports `ringbatch.shm` alone. Read first: status.py.
"""
