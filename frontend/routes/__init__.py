"""Application of the user's own beside ringbatch's paths: custom routes, pages, streams.

It runs in the frontends themselves.

Enters: the name of an ASGI application, its requests, arrays for models. Leaves: its answers, and
arrays of models' answers, through the lane of the process. Imports request, client (for the codec
of arrays), codec, v1, security. Read first: mounted.py, then models.py.
"""
