"""Asking the server from outside whether it serves, as any client would."""

import http.client
import socket

_TIMEOUT_S = 2.0


def answers_ready(listener: socket.socket) -> bool:
    """Whether a frontend answers on that socket's address that all models are ready."""
    host, port = listener.getsockname()[:2]
    anywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    connection = http.client.HTTPConnection(anywhere.get(host, host), port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
