"""KServe's V1 protocol: predict requests to parts for slots, and results to answers.

Enters: bytes of a body, a `ModelSpec`. Leaves: parts, bytes of an answer, errors. Imports codec.
Read first: protocol.py, then request.py, answer.py and rendering.py.
"""
