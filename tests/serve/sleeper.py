"""A model server of its own process: batches one after the other, each of which takes a while.

Run as ``python sleeper.py PORT SECONDS``. A prediction is its instance and the port.
"""

import json
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ONE_AT_A_TIME = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    """Handler of predictions, and of the question whether the server is ready."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def handle(self) -> None:
        """Serve a connection until it ends, however it does."""
        with suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        """Answer that the server is ready."""
        self._answer({"ready": True})

    def do_POST(self) -> None:
        """Answer each instance with itself and the number of this server."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with ONE_AT_A_TIME:
            time.sleep(float(sys.argv[2]))
        self._answer({"predictions": [[value, int(sys.argv[1])] for value in asked["instances"]]})

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
