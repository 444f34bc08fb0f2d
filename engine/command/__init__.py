"""The command line: arguments in, one function called.

Enters: arguments. Leaves: an exit status. It may import every other room of the engine, and only
``python -m ringbatch.engine`` imports it. Read first: cli.py.
"""
