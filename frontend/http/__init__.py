"""HTTP/1.1 connections: the fast lane for predictions, the fallback protocol for everything else,
their limits and clocks.

Enters: bytes from a socket. Leaves: bytes to it; what the fast lane does not take goes to uvicorn's
protocol and so to falcon. Imports request, v1, codec, security. Read first: phases.py
(what a connection can be about, and how long), fast_lane_states.py (what it can do next),
fast_lane.py, then fallback.py. gzip is decoded in content_coding.py.
"""
