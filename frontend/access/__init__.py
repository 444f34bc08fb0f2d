"""The access log, and what clients are told of where the time of their requests went.

Enters: how each request ended, and what its connection knows of it. Leaves: lines on standard
error, the value of a header. http, grpc and server import it; it imports request and codec. Read
first: choice.py, then recorder.py.
"""
