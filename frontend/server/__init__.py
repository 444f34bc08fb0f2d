"""The processes that serve HTTP: Gunicorn's arbiter and its worker, which puts a frontend together.

Enters: what the supervisor says on the command line, listening sockets. Leaves: nothing; it runs
until it is stopped. It may import every other room of the frontend but client and grpc, and nobody
imports it but ``python -m ringbatch.frontend``. Read first: gunicorn_worker.py.
"""
