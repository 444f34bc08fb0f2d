"""HTTP/2 for servers: one connection as a state machine, without sockets, clocks or chance.

Enters: the bytes that a client sent. Leaves: streams on which something has happened, and the bytes
that are to be sent. Imports frontend.codec, and hpack. Read first: connection.py, stream.py,
then bodies.py and outgoing.py.
"""
