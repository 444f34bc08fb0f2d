"""HTTP/2 for V1, V2 and all other paths, on the port of HTTP/1.1.

Enters: a connection whose client has greeted, as HTTP/1 hands it over. Leaves: for each stream a
request to the ASGI application, as HTTP/1's fallback makes them, and its answer.
Read first: served_connection.py, which gRPC's connections are too, connection.py, then
served_stream.py. The room needs hpack.
"""
