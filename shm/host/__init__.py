"""Host of a process: processors, credentials, the supervisor's socket, log and signals at start.

Enters: paths, descriptors and settings as they were given to the process. Leaves: plain values, and
errors of `ringbatch.shm.errors`. Every room of engine and frontend may import it; of ringbatch it
imports `ringbatch.shm` alone. Read first: process.py.
"""
