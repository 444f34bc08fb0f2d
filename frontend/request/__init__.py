"""Pipeline of requests, for HTTP and gRPC alike: admission, slot, submission, answer, rejection.

Enters: the body or the parts of a request, its deadline, who waits for it. Leaves: the bytes of the
answer, or an error. Imports v1, v2 and codec; http, falcon, grpc, proxy and metrics import it. Read
first: pipeline.py, then codec.py, task.py and gateway.py.
"""
