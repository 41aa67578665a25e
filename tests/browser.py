"""A real browser for tests of pages: headless Chromium, driven over its debugging pipe, so that nothing listens on a port."""

import base64
import json
import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")


def installed() -> str | None:
    """The path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Tab:
    """One page: `open` a file at a width, `ask` JavaScript for a value, take a `picture`."""

    def __init__(self, into: int, out: int):
        self.into, self.out, self.asked, self.session, self.rest = into, out, 0, None, b""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.seen = []    # events, such as requests and errors
        self.call("Page.enable"), self.call("Network.enable"), self.call("Log.enable")

    def call(self, method: str, **params):
        """One command of the DevTools protocol and its result."""
        self.asked += 1
        message = {"id": self.asked, "method": method, "params": params} | ({"sessionId": self.session} if self.session else {})
        os.write(self.into, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self.asked:
            if self.session:
                self.seen.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _read(self) -> dict:
        while b"\0" not in self.rest:
            if not (data := os.read(self.out, 1 << 20)):
                raise RuntimeError("the browser has ended")
            self.rest += data
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def open(self, path: Path, width: int, height: int = 900, dark: bool = False, media: str = ""):
        """Load a file in a viewport of this size."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", media=media,
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.seen.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while self.ask("document.readyState") != "complete":
            pass

    def ask(self, script: str):
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def picture(self, path: Path, **clip):
        """A PNG of the whole page, or of x, y, width, height."""
        more = {"clip": clip | {"scale": 1}} if clip else {}
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True, **more)["data"]
        path.write_bytes(base64.b64decode(data))


@contextmanager
def tab(profile: Path):
    """A Tab in a browser of its own, with an empty profile in this folder; both end with the block."""
    read_in, write_in = os.pipe()
    read_out, write_out = os.pipe()
    def ends():    # the browser reads commands from 3 and writes answers to 4
        spare_in, spare_out = os.dup(read_in), os.dup(write_out)
        os.dup2(spare_in, 3), os.dup2(spare_out, 4)
    command = [installed(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
               "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(command, preexec_fn=ends, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(read_in), os.close(write_out)
    try:
        yield Tab(write_in, read_out)
    finally:
        process.terminate()
        process.wait(20)
        os.close(write_in), os.close(read_out)
