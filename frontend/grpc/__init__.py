"""gRPC in its own process: the Open Inference Protocol, Triton's additions, health, reflection.

Enters: messages' bytes and metadata from grpc.aio. Leaves: messages' bytes, statuses. Imports
request, v2, codec, security. Read first: server.py, service.py, then inference.py.
"""
