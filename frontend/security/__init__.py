"""Who may speak to a frontend: certificates, authorities and API keys, read anew where files
change.

Enters: paths, and the values of headers. Leaves: TLS contexts, whether a key is known. http,
falcon, grpc, proxy and server import it; of ringbatch it imports `ringbatch.shm` alone. Read first:
credentials.py.
"""
