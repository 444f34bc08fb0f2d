"""gRPC: the Open Inference Protocol with Triton's additions, health and reflection, in a process of
its own.

Enters: messages' bytes and metadata from grpc.aio. Leaves: messages' bytes, statuses. Imports
request, v2, codec, security. Read first: server.py, service.py, then inference.py.
"""
