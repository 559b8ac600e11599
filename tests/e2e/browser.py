"""A real browser through the WebDriver protocol, from the standard library."""
import base64
import json
import pathlib
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"enter": "\ue007", "escape": "\ue00c", "shift": "\ue008", "tab": "\ue004", "up": "\ue013", "null": "\ue000"}
WAIT_S = 60  # nothing takes long but on a machine that does other things


def missing():
    """What is not installed, or an empty string."""
    names = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    return f"not installed: {', '.join(names)} (Debian: chromium chromium-driver)" if names else ""


class WebDriverError(Exception):
    pass


class Browser:
    def __init__(self, profile):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                       text=True)
        started = re.compile(r"started successfully on port (\d+)")
        self.base = ""
        for line in self.driver.stdout:
            if found := started.search(line):
                self.base = f"http://127.0.0.1:{found[1]}"
                break
        arguments = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run",
                     "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
                     "--force-prefers-reduced-motion", f"--user-data-dir={profile}"]
        reply = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.base += f"/session/{reply['sessionId']}"

    def close(self):
        try:
            self.call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()
            self.driver.stdout.close()

    def call(self, method, path, body=None):
        data = None if method != "POST" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as error:
            raise WebDriverError(json.load(error)["value"]["message"]) from None

    def devtools(self, command, **parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def resize(self, width, height, phone=False):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                      mobile=phone)
        self.devtools("Emulation.setTouchEmulationEnabled", enabled=phone)

    def prefer(self, scheme):
        self.devtools("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}])

    def script(self, source, *arguments):
        return self.call("POST", "/execute/sync", {"script": source, "args": list(arguments)})

    def script_async(self, source, *arguments):
        return self.call("POST", "/execute/async", {"script": source, "args": list(arguments)})

    def find(self, css):
        return self.call("POST", "/element", {"using": "css selector", "value": css})[ELEMENT]

    def click(self, css):
        self.call("POST", f"/element/{self.find(css)}/click")

    def type(self, css, *words):
        """Words as they are; names of KEYS in tuples, pressed together."""
        text = "".join(w if isinstance(w, str) else "".join(KEYS[k] for k in w) + KEYS["null"] for w in words)
        self.call("POST", f"/element/{self.find(css)}/value", {"text": text})

    def press(self, *keys):
        """On whatever has the focus."""
        actions = [{"type": "keyDown", "value": KEYS[k]} for k in keys]
        actions += [{"type": "keyUp", "value": KEYS[k]} for k in reversed(keys)]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def text(self, css):
        """As it is shown; None when there is no such element, '' when it is hidden."""
        return self.script("const e = document.querySelector(arguments[0]); return e && e.innerText.trim();", css)

    def count(self, css):
        return self.script("return document.querySelectorAll(arguments[0]).length", css)

    def wait(self, source, *arguments):
        """Until the script gives something true; gives it."""
        deadline = time.monotonic() + WAIT_S
        while not (found := self.script(f"return ({source})", *arguments)):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {WAIT_S} s: {source}")
            time.sleep(0.02)
        return found

    def wait_text(self, css, pattern):
        return self.wait("new RegExp(arguments[1]).test(document.querySelector(arguments[0])?.innerText ?? '')", css,
                         pattern)

    def complaints(self):
        """Errors and warnings of the console since the last call."""
        return [entry["message"] for entry in self.call("POST", "/se/log", {"type": "browser"})
                if entry["level"] in ("SEVERE", "WARNING")]

    def screenshot(self, path):
        path = pathlib.Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.call("GET", "/screenshot")))
