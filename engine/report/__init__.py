"""Reading a running engine from outside: `ringbatch status`, `ringbatch models`, `ringbatch top`.

Enters: the segment. Leaves: text. Imports `ringbatch.shm` alone. Read first: status.py.
"""
