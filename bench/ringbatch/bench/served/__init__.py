"""Measured server: started or found, asked for its signature, and watched while it works.

Enters: a configuration file or an address. Leaves: where it is, requests for it, its metrics as
values, the host in words. Imports load. Read first: engine.py.
"""
