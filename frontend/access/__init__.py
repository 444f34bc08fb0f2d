"""Access log, response headers with timing and load, and the choice of traced requests.

Enters: how each request ended, and what its connection knows of it. Leaves: lines on standard
error, the value of a header, records in the segment. http, grpc and server import it; it imports
request and codec. Read first: sampling.py, then recorder.py.
"""
