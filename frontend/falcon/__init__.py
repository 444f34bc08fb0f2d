"""Every endpoint on Falcon: V1 and V2, models' control, shared memory, OpenAPI, health.

Enters: requests as Falcon has them. Leaves: responses. Imports request, http (bodies and their
limits), v2, codec, security. Read first: app.py, then exchange.py.
"""
