"""The program of device_model.py behind mosec, its dynamic batching: bytes of a row in and out."""

from device_model import CAP, Program
from mosec import Server, Worker


class Raw(Worker):
    """mosec worker that runs the program on the device."""

    resp_mime_type = "application/octet-stream"

    def __init__(self) -> None:
        self._program = Program()

    def deserialize(self, data: bytes) -> bytes:
        return data

    def serialize(self, data: bytes) -> bytes:
        return data

    def forward(self, data: list[bytes]) -> list[bytes]:
        """Run the rows of one batch."""
        return self._program.rows(data)


if __name__ == "__main__":
    server = Server()
    server.append_worker(
        Raw, num=1, max_batch_size=CAP, max_wait_time=1, timeout=60_000, route="/predict"
    )
    server.run()
