#!/usr/bin/env python3
"""The page from the real server: its files over HTTP, and in a real browser where there is one."""
import gzip
import os
import pathlib
import tempfile
import unittest

import browser
from fake_server import PAGE, page_headers
from server import Server

SHOTS = pathlib.Path(os.environ.get("NIBBLE_SCREENSHOTS", "build/cpu/page_screenshots"))
STORY = "Tell me a story about a brave cat."


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server("--api-key", "secret"))

    def get(self, path, method="GET", **headers):
        connection = self.server.connect()
        self.addCleanup(connection.close)
        connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        reply = connection.getresponse()
        return reply, reply.read()

    def test_are_sent_without_a_key(self):
        for file in PAGE.iterdir():
            if file.name == "headers.txt":
                continue
            path = "/" if file.name == "index.html" else f"/page/{file.name}"
            reply, body = self.get(path)
            self.assertEqual((reply.status, body), (200, file.read_bytes()), path)
            for name, value in page_headers().items():
                self.assertEqual(reply.getheader(name), value)
            packed, packed_body = self.get(path, accept_encoding="gzip")
            self.assertEqual(packed.getheader("content-encoding"), "gzip")
            self.assertEqual(gzip.decompress(packed_body), body)
            head, nothing = self.get(path, method="HEAD")
            self.assertEqual((head.status, head.getheader("content-length"), nothing), (200, str(len(body)), b""))
            known, nothing = self.get(path, if_none_match=reply.getheader("etag"))
            self.assertEqual((known.status, nothing), (304, b""))

    def test_nothing_else_is(self):
        for path in ("/page/headers.txt", "/page/", "/index.html", "/page/../CMakeLists.txt"):
            self.assertEqual(self.get(path)[0].status, 401, path)


@unittest.skipIf(browser.missing(), browser.missing())
class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="nibble_page_")
        self.addCleanup(folder.cleanup)
        self.browser = browser.Browser(folder.name)
        self.addCleanup(self.browser.close)
        self.browser.resize(1200, 800)

    def ask(self, text):
        self.browser.type("#prompt", text, ("enter",))
        self.browser.wait("document.getElementById('send').title === 'Send'")

    def test_chats_with_the_demo_model(self):
        with Server("--api-key", "secret") as server:
            self.browser.open(server.url)
            self.browser.wait_text("#notice", "wants a key")
            self.browser.type("#notice input", "secret", ("enter",))
            self.browser.wait_text("#model", "context of")
            self.browser.click("#tune")
            self.browser.type("#s-seed", "11")
            self.browser.type("#s-max_tokens", "200")
            self.browser.press("escape")
            self.ask(STORY)
            story = self.browser.text(".turn:last-child .prose")
            self.assertGreater(len(story), 100)
            self.assertEqual(self.browser.text(".turn:last-child .error"), "")
            self.assertRegex(self.browser.text(".turn:last-child .receipt summary"), r"^\d+ tokens · [\d,.]+ tok/s$")
            self.browser.click(".turn:last-child .receipt summary")
            receipt = self.browser.text(".turn:last-child .receipt dl").replace("\n", " ")
            self.assertRegex(receipt, r"Prompt \d+ tokens .*Prefill .*Decode .*Seed 11 Kernels \S.* Ended by (stop|length) Request req-")
            self.browser.click(".turn:last-child .receipt summary")
            self.browser.click(".turn:last-child button[title=Regenerate]")
            self.browser.wait("document.getElementById('send').title === 'Send'")
            self.assertEqual(self.browser.text(".turn:last-child .prose"), story)  # the same seed
            self.browser.screenshot(SHOTS / "serve_chat.png")
            self.browser.click("nav a[href='#status']")
            self.browser.wait("/[1-9]/.test(document.querySelector('#totals dd')?.innerText)")
            self.browser.screenshot(SHOTS / "serve_status.png")
            complaints = [c for c in self.browser.complaints() if "401" not in c]
            self.assertEqual(complaints, [])


if __name__ == "__main__":
    unittest.main()
