"""Chromium without a screen, driven by its own protocol (Chrome DevTools Protocol)."""

import asyncio
import base64
import shutil
import subprocess
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
import pytest

_START_LIMIT_S: Final = 60
_ANSWER_LIMIT_S: Final = 60
T = TypeVar("T")


def installed() -> str:
    """Return the path of chromium, or skip the test if it is not installed."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("chromium is not installed (Debian: chromium)")
    return found


class Browser:
    """Headless chromium with one page.

    Args:
        folder: for its profile and its words.

    Attributes:
        complaints: what pages wrote to the console as warnings and errors, and what was refused or
            failed in them.
        asked: the addresses that pages asked for.
    """

    def __init__(self, folder: Path) -> None:
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self._folder = folder
        # First, as a skip must leave no loop behind.
        program = installed()
        self._loop = asyncio.new_event_loop()
        self._number = 0
        with (folder / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    "--headless=new",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--disable-dev-shm-usage",
                    "--disable-background-networking",
                    "--no-first-run",
                    "--hide-scrollbars",
                    "--remote-debugging-port=0",
                    f"--user-data-dir={folder / 'profile'}",
                    "about:blank",
                ],
                stdout=log,
                stderr=log,
            )
        self._run(self._connect())
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.do(f"{domain}.enable")

    def do(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command; what it answers."""
        self._number += 1
        found = self._run(self._ask(self._number, method, parameters))
        assert "error" not in found, f"{method}: {found['error']}"
        answer: dict[str, Any] = found["result"]
        return answer

    def open(self, url: str) -> None:
        """Go to a page."""
        self.do("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        found = self.do(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press a key and let it go."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        about = {"key": key, "windowsVirtualKeyCode": code}
        self.do("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
        self.do("Input.dispatchKeyEvent", type="keyUp", **about)

    def look_like(self, width: int, height: int, scheme: str = "light", scale: float = 1) -> None:
        """Set the size of the screen and the preferred color scheme."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale}
        self.do("Emulation.setDeviceMetricsOverride", mobile=width < 600, **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.do("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Store what is seen, or all of the page, as PNG."""
        found = self.do("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(30)
        self._run(self._session.close())
        self._loop.close()

    def _run(self, task: Awaitable[T]) -> T:
        return self._loop.run_until_complete(asyncio.wait_for(task, _ANSWER_LIMIT_S))

    async def _connect(self) -> None:
        self._session = aiohttp.ClientSession()
        port_file = self._folder / "profile/DevToolsActivePort"
        give_up_at = time.monotonic() + _START_LIMIT_S
        while not port_file.exists() or "\n" not in port_file.read_text():
            assert self._process.poll() is None, (self._folder / "chromium.log").read_text()
            assert time.monotonic() < give_up_at, "chromium does not start"
            await asyncio.sleep(0.05)
        port = port_file.read_text().splitlines()[0]
        async with self._session.get(f"http://127.0.0.1:{port}/json") as answer:
            (page,) = [one for one in await answer.json() if one["type"] == "page"]
        self._socket = await self._session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0)

    async def _ask(self, number: int, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            found: dict[str, Any] = await self._socket.receive_json()
            if found.get("id") == number:
                return found
            self._note(found.get("method", ""), found.get("params", {}))

    def _note(self, method: str, event: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.asked.append(event["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(event["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("warning", "error"):
            self.complaints.append(str(event["args"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("warning", "error"):
            self.complaints.append(f"{event['entry']['text']} {event['entry'].get('url', '')}")
