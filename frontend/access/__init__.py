"""The access log, what clients are told of where the time of their requests went, and which
requests are traced.

Enters: how each request ended, and what its connection knows of it. Leaves: lines on standard
error, the value of a header, records in the segment. http, grpc and server import it; it imports
request and codec. Read first: choice.py, then recorder.py.
"""
