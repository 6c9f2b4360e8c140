#!/usr/bin/env python3
"""Looks at the live page in headless Chromium while the digits are trained over three processes,
and compares what it shows with what the workers count. Needs only the standard library.

    tests/live/browser.py --demo scripts/demo --program TRAIN_DIGITS [--chromium PROGRAM]
                          [--screenshots FOLDER]

Ends with 77 where there is no Chromium."""
import argparse
import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

EPOCHS = 120  # long enough for a few looks at it
BATCHES = 45  # of 32 of the 1437 digits to learn from
BOUND = 150  # seconds, for everything that is waited for


def wait_for(condition, what):
    end = time.monotonic() + BOUND
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("in vain: " + what)
        time.sleep(0.05)


class Browser:
    """Chromium, driven over its debugging pipe: JSON messages that end with a zero byte."""

    def __init__(self, program, profile):
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()

        def wire():  # the browser reads from descriptor 3 and writes to 4
            a, b = os.dup(to_read), os.dup(to_write)
            os.dup2(a, 3)
            os.dup2(b, 4)

        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--disable-background-networking", "--hide-scrollbars", "--remote-debugging-pipe",
                 "--user-data-dir=" + profile, "about:blank"]
        self.process = subprocess.Popen([program] + flags, preexec_fn=wire, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.buffer, self.last, self.session = b"", 0, None
        self.complaints = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def message(self):
        while b"\0" not in self.buffer:
            more = os.read(self.back, 65536)
            if not more:
                raise AssertionError("the browser ended")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        self.last += 1
        request = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.to, json.dumps(request).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("method") == "Runtime.exceptionThrown":
                details = message["params"]["exceptionDetails"]
                self.complaints.append(details.get("exception", {}).get("description", details["text"]))
            if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.complaints.append(message["params"]["entry"]["text"])
            if message.get("id") == self.last:
                if "error" in message:
                    raise AssertionError(method + ": " + message["error"]["message"])
                return message["result"]

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise AssertionError(expression + ": " + str(result["exceptionDetails"]))
        return result["result"].get("value")

    def samples(self):
        return self.evaluate("+(document.body?.dataset.samples || 0)")

    def look(self, width, height, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 500)
        theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=theme)

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="webp", quality=45)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def end(self):
        self.process.kill()
        self.process.wait()


class Training:
    """The demo, with its output read as it comes."""

    def __init__(self, demo, program):
        command = [demo, "--program", program, "--live", "--", "--optimizer", "sgd", "--epochs", str(EPOCHS),
                   "--linger", "60"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        start_new_session=True)
        self.lines = []
        threading.Thread(target=lambda: self.lines.extend(iter(self.process.stdout.readline, "")),
                         daemon=True).start()

    def find(self, pattern):
        if self.process.poll() is not None and not any(re.search(pattern, line) for line in self.lines):
            raise AssertionError("the training ended:\n" + "".join(self.lines))
        return next((found for found in (re.search(pattern, line) for line in list(self.lines)) if found), None)

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        self.process.wait()


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


ROWS = """[...document.querySelectorAll('#functions tbody tr')].map(r => ({function: r.dataset.function,
  from: r.dataset.from, to: r.dataset.to, begun: +r.dataset.begun, ended: +r.dataset.ended,
  failed: +r.dataset.failed}))"""


def is_training(row):
    return "live_" not in row["function"]  # the page's own questions go on


def check_while_training(browser, training):
    wait_for(lambda: browser.samples() >= 3, "three samples")
    assert not training.find("done; the page stays"), "the training was over too soon"
    assert browser.evaluate("document.getElementById('status').textContent") == "connected"
    for part in ("workers", "calls", "latency", "passes", "graph"):
        shapes = f"document.querySelectorAll('#{part} *').length"
        wait_for(lambda: browser.evaluate(shapes) > 4, "a drawing of " + part)
        assert browser.evaluate(f"document.getElementById('{part}').getAttribute('aria-label')"), part
    # Gradients cross between workers in the picture of the graph.
    assert browser.evaluate("document.querySelectorAll('#graph path[stroke=\"var(--grad)\"]').length") >= 2
    assert browser.evaluate("document.querySelectorAll('#workers path').length") >= 4


def check_numbers(browser, url):
    """The page, the JSON, the text for Prometheus and arithmetic agree."""
    samples = browser.samples()
    wait_for(lambda: browser.samples() >= samples + 2, "samples of the end")
    shown = [row for row in browser.evaluate(ROWS) if is_training(row)]
    counted = []
    for worker in json.loads(fetch(url + "api/group"))["workers"]:
        for call in worker["state"]["made"]:
            counted.append({"function": call["function"], "from": worker["name"], "to": call["peer"],
                            "begun": call["begun"], "ended": call["ended"], "failed": sum(call["failed"].values())})
    order = lambda row: (row["function"], row["from"], row["to"])
    counted = sorted(filter(is_training, counted), key=order)
    assert sorted(shown, key=order) == counted, f"page:\n{shown}\nworkers:\n{counted}"
    assert all(row["begun"] == row["ended"] and row["failed"] == 0 for row in shown), shown

    text = fetch(url + "metrics")
    for row in (row for row in shown if row["from"] == "trainer"):
        function = row["function"].replace("\\", "\\\\").replace('"', '\\"')
        sample = (f'distgrad_calls_total{{worker="trainer",peer="{row["to"]}",function="{function}"}} '
                  f'{row["begun"]}\n')
        assert sample in text, sample

    forward = {row["to"]: row["begun"] for row in shown if row["function"] == "Stage::forward"}
    expected = EPOCHS * BATCHES + 1  # and once on what was kept for testing
    assert forward == {"stage0": expected, "stage1": expected}, (forward, expected)
    note = browser.evaluate("document.getElementById('passes-note').textContent").replace("\u202f", "")
    assert note.startswith(f"{EPOCHS * BATCHES} ended, 0 failed"), note


def check_widths(browser):
    for width in (390, 768, 1280):
        browser.look(width, 900)
        wide = browser.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"at {width} the page is {wide} wide"


def take_pictures(browser, folder):
    samples = browser.samples()
    wait_for(lambda: browser.samples() >= samples + 8, "samples for a picture")
    for name, width, height, dark in (("light", 1280, 1080, False), ("dark", 1280, 1080, True), ("phone", 390, 1500, False)):
        browser.look(width, height, dark)
        samples = browser.samples()
        wait_for(lambda: browser.samples() > samples, "a redrawn page")
        browser.picture(os.path.join(folder, f"live-{name}.webp"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--demo", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("chromium-browser"))
    parser.add_argument("--screenshots")
    arguments = parser.parse_args()
    if not arguments.chromium or not os.path.exists(arguments.chromium):
        print("no Chromium here: apt-get install chromium")
        return 77

    browser = training = None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        try:
            browser = Browser(arguments.chromium, profile)  # first: it takes its time to start
            browser.look(1280, 900)
            training = Training(arguments.demo, arguments.program)
            url = wait_for(lambda: training.find(r"live at (http://\S+)"), "the address of the page").group(1)
            browser.call("Page.navigate", url=url)
            check_while_training(browser, training)
            if arguments.screenshots:
                take_pictures(browser, arguments.screenshots)
                browser.look(1280, 900)
            wait_for(lambda: training.find("done; the page stays"), "the end of the training")
            check_numbers(browser, url)
            check_widths(browser)
            assert not browser.complaints, browser.complaints
            training.end()
            wait_for(lambda: browser.evaluate("document.body.classList.contains('lost')"), "the loss being noticed")
            status = browser.evaluate("document.getElementById('status').textContent")
            assert status.startswith("connection to the worker lost"), status
        finally:
            if browser:
                browser.end()
            if training:
                training.end()
    print("the page shows what the workers count")
    return 0


if __name__ == "__main__":
    sys.exit(main())
