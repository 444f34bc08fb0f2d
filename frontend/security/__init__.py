"""Credentials of a frontend and its clients: certificates, authorities, API keys; with reload.

Enters: paths, and the values of headers. Leaves: TLS contexts, whether a key is known. http,
falcon, grpc, proxy and server import it; of ringbatch it imports `ringbatch.shm` alone. Read first:
credentials.py.
"""
