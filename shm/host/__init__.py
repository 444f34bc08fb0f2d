"""What a process of any role asks of its host: processors, files with credentials, the socket to
the supervisor, log and signals at the start.

Enters: paths, descriptors and settings as they were given to the process. Leaves: plain values, and
errors of `ringbatch.shm.errors`. Every room of engine and frontend may import it; of ringbatch it
imports `ringbatch.shm` alone. Read first: process.py.
"""
