"""`ringbatch demo`: a server with the bundled digits model, clients, and a report of what happened.

Enters: two numbers. Leaves: text on the terminal. Imports config and report. Read first: demo.py.
"""
