"""HTTP/1.1 connections: the fast lane, the fallback protocol, their limits and clocks.

Enters: bytes from a socket. Leaves: bytes to it; all but predictions goes to uvicorn's
protocol and so to falcon. Imports request, v1, codec, security. Read first: phases.py
(phases of a connection, and their limits), fast_lane_states.py (its next steps),
fast_lane.py, event_answer.py, then fallback.py. gzip is decoded in content_coding.py.
"""
