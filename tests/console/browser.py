"""A real Chromium, driven by its DevTools protocol over a pipe: pages, keys, clicks,
pictures.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    None,
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-sync",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--remote-debugging-pipe",
    "--allow-file-access-from-files",
)


class Browser:
    """One browser with one page at a time, each with cookies and a cache of its own
    (`anew`).
    """

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        # commands to it, answers from it
        ours = os.pipe()
        theirs = os.pipe()
        reading, writing = (
            fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (ours[0], theirs[1])
        )
        quiet = os.open(os.devnull, os.O_RDWR)
        actions = [
            (os.POSIX_SPAWN_DUP2, a, b)
            for a, b in ((quiet, 1), (quiet, 2), (reading, 3), (writing, 4))
        ]
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = os.posix_spawn(
            CHROMIUM, command, os.environ, file_actions=actions, setpgroup=0
        )
        for end in (ours[0], theirs[1], reading, writing, quiet):
            os.close(end)
        self._to = ours[1]
        self._from = theirs[0]
        self._rest = b""
        self._number = 0
        self.heard = list[dict[str, Any]]()
        self._session: str | None = None
        self._context: str | None = None

    def anew(self) -> None:
        """A page that knows nothing of those before it, which are closed."""
        self._session = None
        if self._context is not None:
            self.call("Target.disposeBrowserContext", browserContextId=self._context)
        self._context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call(
            "Target.createTarget", url="about:blank", browserContextId=self._context
        )["targetId"]
        self._session = self.call(
            "Target.attachToTarget", targetId=target, flatten=True
        )["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.heard.clear()

    def call(self, method: str, **params: Any) -> Any:
        """Ask for something, and what came of it."""
        self._number += 1
        body = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            body["sessionId"] = self._session
        os.write(self._to, json.dumps(body).encode() + b"\0")
        while True:
            said = self._next(60.0)
            if said.get("id") == self._number:
                assert "error" not in said, said
                return said["result"]
            self.heard.append(said)

    def wait(self, event: str) -> dict[str, Any]:
        """The next event of this kind that was not waited for yet."""
        while True:
            for place, said in enumerate(self.heard):
                if said.get("method") == event:
                    del self.heard[place]
                    return said["params"]  # type: ignore[no-any-return]
            self.heard.append(self._next(60.0))

    def go(self, url: str) -> None:
        """Open an address and wait until it is there."""
        self._forget("Page.loadEventFired")
        self.call("Page.navigate", url=url)
        self.wait("Page.loadEventFired")

    def js(self, expression: str) -> Any:
        """What an expression is in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def dom(self) -> str:
        """What the page is now."""
        return str(self.js("document.documentElement.outerHTML"))

    def text(self) -> str:
        """What can be read on the page, spaces made one."""
        return " ".join(str(self.js("document.body.innerText")).split())

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of the first such element; a new page is waited
        for.
        """
        self._forget("Page.loadEventFired")
        place = self.js(
            "(e => { e.scrollIntoView({block: 'center', behavior: 'instant'}); const b "
            "= e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / "
            f"2] }})(document.querySelector({json.dumps(selector)}))"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=place[0],
                y=place[1],
                button="left",
                clickCount=1,
            )
        self.wait("Page.loadEventFired")

    def press(self, key: str, *, loads: bool = False) -> None:
        """A key of the keyboard."""
        self._forget("Page.loadEventFired")
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        self.call(
            "Input.dispatchKeyEvent",
            type="keyDown",
            key=key,
            code=key,
            windowsVirtualKeyCode=code,
            **text,
        )
        self.call(
            "Input.dispatchKeyEvent",
            type="keyUp",
            key=key,
            code=key,
            windowsVirtualKeyCode=code,
        )
        if loads:
            self.wait("Page.loadEventFired")

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def look(self, *, width: int, height: int = 1000, dark: bool = False) -> None:
        """How wide the screen is, and whether it is night."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def complaints(self) -> list[str]:
        """What the browser logged: errors of the page, and what its policy stopped."""
        kinds = (
            "Log.entryAdded",
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
        )
        return [
            json.dumps(said["params"])
            for said in self.heard
            if said.get("method") in kinds
        ]

    def close(self) -> None:
        """End it, with all its processes."""
        os.close(self._to)
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._from)

    def _forget(self, event: str) -> None:
        self.heard = [said for said in self.heard if said.get("method") != event]

    def _next(self, seconds: float) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while b"\0" not in self._rest:
            ready, _, _ = select.select(
                [self._from], [], [], max(0.0, until - time.monotonic())
            )
            assert ready, "the browser says nothing"
            more = os.read(self._from, 1 << 16)
            assert more, "the browser is gone"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        return json.loads(line)  # type: ignore[no-any-return]
