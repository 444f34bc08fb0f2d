"""The worker: runs batches on its instance of a model and answers them.

Enters: tasks. Leaves: results in slots, reports. When a batch fails, retry.py runs it again and
bisect.py finds the request that is to blame. Imports ipc, process and runtimes. Read first:
worker.py, then runner.py.
"""
