"""The worker: runs batches on its instance of a model and answers them.

Enters: tasks. Leaves: results in slots, reports. When a batch fails, retry.py runs it again and
bisect.py finds the request that is to blame. With a model on a device, device_worker.py has two
batches under way. Imports ipc, process and runtimes. Read first: worker.py, then runner.py.
"""
