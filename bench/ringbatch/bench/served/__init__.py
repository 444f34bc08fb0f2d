"""The server that is measured: started or found, asked what it takes, and looked at while it works.

Enters: a configuration file or an address. Leaves: where it is, requests for it, its metrics as
values, the host in words. Imports load. Read first: engine.py.
"""
