"""KServe's V1 protocol: the body of a predict request to parts for slots, results to the body of
its answer.

Enters: bytes of a body, a `ModelSpec`. Leaves: parts, bytes of an answer, errors. Imports codec.
Read first: protocol.py, then request.py, answer.py and rendering.py.
"""
