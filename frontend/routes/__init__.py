"""An application of the user's own, beside the paths that are ringbatch's: custom routes, pages,
streams, in the frontends themselves.

Enters: the name of an ASGI application, its requests, arrays for models. Leaves: its answers, and
arrays of models' answers, through the lane of the process. Imports request, client (for what arrays
mean), codec, v1, security. Read first: mounted.py, then models.py.
"""
