"""A generator whose requests go through shared memory, as a program's do: by a Client.

Enters: orders, as those of load. Leaves: outcomes, as those of load. It alone imports what it
measures, and of that the public names. Nobody imports it: it is a process. Read first: calls.py.
"""
