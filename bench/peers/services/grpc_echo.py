"""A bare gRPC server that answers every ModelInfer with its own request, as bytes.

What it reaches is what grpcio leaves to any server in Python on top of it.
"""

import argparse
import http.server
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import uvloop

SERVICE = "inference.GRPCInferenceService"
THREADS = 4


class Ready(http.server.BaseHTTPRequestHandler):
    """Answers GET, for whoever waits for the start."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def listen_for_readiness(port: int) -> None:
    server = http.server.HTTPServer(("127.0.0.1", port), Ready)
    threading.Thread(target=server.serve_forever, daemon=True).start()


async def serve_aio(port: int, ready_port: int) -> None:
    async def echo(data: bytes, _context: object) -> bytes:
        return data

    server = grpc.aio.server(handlers=[handler(echo)])
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    listen_for_readiness(ready_port)
    await server.wait_for_termination()


def serve_threads(port: int, ready_port: int) -> None:
    server = grpc.server(ThreadPoolExecutor(THREADS), handlers=[handler(lambda data, _: data)])
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    listen_for_readiness(ready_port)
    server.wait_for_termination()


def handler(echo: object) -> object:
    method = grpc.unary_unary_rpc_method_handler(echo)
    return grpc.method_handlers_generic_handler(SERVICE, {"ModelInfer": method})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ready-port", type=int, required=True)
    parser.add_argument("--threads", action="store_true")
    options = parser.parse_args()
    if options.threads:
        serve_threads(options.port, options.ready_port)
    else:
        uvloop.run(serve_aio(options.port, options.ready_port))


if __name__ == "__main__":
    main()
