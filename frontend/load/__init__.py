"""What balancers are told of an engine: how long a request that comes now would take.

Enters: what the segment says of every model, and the time. Leaves: HAProxy's word for a server, and
load reports (ORCA) for Envoy and gRPC. Imports request, to know what speaks against a model. Read
first: word.py.
"""
