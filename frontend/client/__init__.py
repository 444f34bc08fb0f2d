"""The in-process client: numpy arrays into the ring and out of it, without HTTP.

Enters: arrays or JSON values of a caller on the same host. Leaves: arrays, futures, errors. Imports
v1, v2 and codec. `ringbatch.frontend` shows what is public of it. Read first: client.py, then
channel.py.
"""
