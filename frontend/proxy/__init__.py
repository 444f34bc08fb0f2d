"""Pass-through to another server: the application, and the routing of paths.

Enters: requests as ASGI has them. Leaves: the other server's answers. Imports http, request,
security. Read first: pass_through_app.py, then pass_through.py.
"""
