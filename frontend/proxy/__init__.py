"""Requests that are for another server, passed on: the application, and which paths go there.

Enters: requests as ASGI has them. Leaves: the other server's answers. Imports http, request,
security. Read first: pass_through_app.py, then pass_through.py.
"""
