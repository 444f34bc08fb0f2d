"""Load of an engine for balancers: the expected time of a request that comes now.

Enters: the segment's words of every model, and the time. Leaves: HAProxy's weight of a server, and
load reports (ORCA) for Envoy and gRPC. Imports request, for the obstacles of a model. Read
first: haproxy_weight.py.
"""
