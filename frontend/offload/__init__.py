"""Process for large bodies, which keeps long work off the event loop.

A thread would hold the interpreter's lock for as long as orjson reads a body.

Enters: a function of a module, and plain values and bytes for it. Leaves: the values and bytes
that it returns, or the error that it raises. Imports shm alone. Read first: process.py, then
messages.py.
"""
