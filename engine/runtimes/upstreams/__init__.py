"""The http runtime: models that other servers run, over KServe's V1 and V2.

Enters: the addresses of model servers. Leaves: a `Model` that sends whole batches to one of them.
Read first: runtime.py, then pool.py and connection.py.
"""
