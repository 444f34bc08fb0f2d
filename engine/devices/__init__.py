"""Batches on a device: the port to it, and the order of a batch's steps there.

Enters: rows in requests' memory, or arrays, of up to two batches at a time. Leaves: a model's
outputs as arrays, once the device has let go of what it read. Read first: port.py, then
batch_run.py.
"""
