"""Load generator through shared memory, by a `Client`, as a program on the host asks.

Enters: orders, as those of load. Leaves: outcomes, as those of load. It alone imports what it
measures, and of that the public names. Nobody imports it: it is a process. Read first: calls.py.
"""
