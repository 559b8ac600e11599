#!/usr/bin/env python3
"""The page in a real browser, against a server that says what each test wants it to say.

Skipped, with the reason, where chromium or chromedriver is not installed. Screenshots are left in
NIBBLE_SCREENSHOTS (build/page_screenshots).
"""
import json
import os
import pathlib
import tempfile
import time
import unittest

import browser
from fake_server import (DONE, SAMPLE, SAMPLE_THOUGHT, FakeServer, Refusal, Stream, answer, content, event,
                         metrics_text, page_headers, pieces, thought, usage)

HERE = pathlib.Path(__file__).resolve().parent
SHOTS = pathlib.Path(os.environ.get("NIBBLE_SCREENSHOTS", HERE.parents[1] / "build/page_screenshots"))
LAST = ".turn:last-child "
CALL = [{"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"city":"Par'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": 'is","days":3}'}}]}]
RECEIPT = {"request_id": "req-1", "choices": [{"queue_ms": 0.4, "prefill_ms": 98.2, "decode_ms": 240.0, "seed": 1234,
                                               "stop_string": "",
                                               "kernel_path": ["gemm_bf16_avx512bf16", "moe_mxfp4_avx512bf16"]}]}




def setUpModule():
    if missing := browser.missing():
        print(f"page not tested: {missing}", flush=True)
        raise unittest.SkipTest(missing)
    folder = tempfile.TemporaryDirectory(prefix="nibble_page_")
    unittest.addModuleCleanup(folder.cleanup)
    PageCase.browser = browser.Browser(folder.name)
    unittest.addModuleCleanup(PageCase.browser.close)


class PageCase(unittest.TestCase):
    maxDiff = 2000

    def setUp(self):
        self.server = FakeServer()
        self.addCleanup(self.server.close)
        self.allowed = ()  # what the console may complain about
        self.browser.resize(1200, 800)
        self.browser.prefer("light")
        self.open()

    def tearDown(self):
        """No script fault, no violation of the content-security policy, nothing asked of other hosts."""
        unexpected = [c for c in self.browser.complaints() if not any(a in c for a in self.allowed)]
        self.assertEqual(unexpected, [])
        hosts = self.browser.script("return [...new Set(performance.getEntriesByType('resource').map(e => new URL(e.name).origin))]")
        self.assertLessEqual(set(hosts), {self.server.url.rstrip("/")})
        self.browser.open("about:blank")

    def open(self, view=""):
        self.browser.open("about:blank")
        self.browser.open(self.server.url + view)

    def say(self, text, *replies):
        self.server.replies += replies
        self.browser.type("#prompt", text, ("enter",))

    def wait_idle(self):
        self.browser.wait("document.getElementById('send').title === 'Send'")

    def converse(self, text, *deltas, **fields):
        self.say(text, Stream(*answer(*deltas, **fields)))
        self.wait_idle()

    def sent(self, i=-1):
        return self.server.requests[i]["messages"]

    def assert_fits_width(self):
        wide = self.browser.script("""
            return [...document.querySelectorAll('html, #scroller, #status-view, dialog')]
                .filter(e => e.scrollWidth > Math.max(e.clientWidth, 0)).map(e => [e.id || e.tagName, e.scrollWidth, e.clientWidth])""")
        self.assertEqual(wide, [])


class Loading(PageCase):
    def test_pure_functions(self):
        self.server.files["/page/page_units.mjs"] = HERE / "page_units.mjs"
        results = self.browser.script_async(
            "const done = arguments[0]; import('/page/page_units.mjs').then(m => m.run()).then(done, e => done(String(e)))")
        self.assertGreater(len(results), 40, results)
        self.assertEqual([r for r in results if r["fault"]], [])

    def test_is_small_and_does_not_shift(self):
        self.converse("hi", content(SAMPLE))
        self.server.page_bytes.clear()
        self.open()
        self.browser.wait_text(LAST + ".prose", "the paper")
        shift = self.browser.script_async("""
            const done = arguments[0]; let sum = 0;
            new PerformanceObserver(list => { for (const e of list.getEntries()) sum += e.value; })
                .observe({type: 'layout-shift', buffered: true});
            setTimeout(() => done(sum), 300);""")
        self.assertEqual(shift, 0)
        self.open("#status")
        self.browser.wait_text("#plots", "Generation")
        self.assertLess(sum(self.server.page_bytes.values()), 84_000)  # of which gzip leaves a third

    def test_policy_forbids_inline_code(self):
        self.allowed = ("Content Security Policy", "Trusted")
        ran = self.browser.script("""
            const s = document.createElement('script'); s.append('window.ran = 1');
            try { document.body.append(s); } catch {}
            try { document.body.insertAdjacentHTML('beforeend', '<img src=x onerror="window.ran = 2">'); } catch {}
            return window.ran ?? 0;""")
        self.assertEqual(ran, 0)
        self.assertIn("trusted-types 'none'", page_headers()["Content-Security-Policy"])

    def test_loading_server(self):
        self.allowed = ("503",)
        self.server.health = Refusal(503, "Loading model")
        self.open()
        self.browser.wait_text("#notice", "^Loading model. Trying again")
        self.browser.screenshot(SHOTS / "loading.png")
        self.say("hi", Refusal(503, "Loading model"), Stream(*answer(content("Ready."))))
        self.browser.wait_text(LAST + ".state", "Loading model")
        self.server.health = None
        self.browser.wait_text(LAST + ".prose", "Ready.")
        self.browser.wait_text("#model", "demo")
        self.assertEqual(self.browser.text("#notice"), "")

    def test_key(self):
        self.allowed = ("401",)
        self.server.key = "secret"
        self.open()
        self.browser.wait_text("#notice", "wants a key")
        self.browser.type("#notice input", "wrong", ("enter",))
        self.browser.wait_text("#notice", "refused this key")
        self.browser.screenshot(SHOTS / "key.png")
        self.say("hi", Stream(*answer(content("Welcome."))))
        self.browser.wait_text(LAST + ".error", "401 a valid API key is needed")
        self.browser.type("#notice input", "secret", ("enter",))
        self.browser.wait_text(LAST + ".prose", "Welcome.")
        self.assertEqual(self.browser.script("return JSON.stringify(localStorage).includes('secret')"), False)

    def test_unreachable_server(self):
        self.allowed = ("ERR_",)
        self.browser.wait_text("#model", "demo")
        self.server.close()
        self.browser.type("#prompt", "hi", ("enter",))
        self.browser.wait_text(LAST + ".error", "The server does not answer.")
        self.browser.wait_text("#notice", "Trying again")


class Chatting(PageCase):
    def test_streams_whatever_the_pieces(self):
        stream = Stream(is_open=True)
        self.say("hi", stream)
        self.browser.wait("document.querySelector('.turn:last-child.waiting .actions')?.hidden")
        text = "Grüße, 世界 😀 — **bold** `x`"
        for piece in b"".join(map(event, [content(c) for c in text])):
            stream.push(bytes([piece]))
        self.browser.wait_text(LAST + ".prose", "^Grüße, 世界 😀 — bold x$")
        self.browser.wait_text("#speed", "tok/s · Esc stops")
        stream.push(*answer())
        stream.end()
        self.wait_idle()
        self.assertEqual(self.browser.count(LAST + ".prose strong"), 1)
        self.assertEqual(self.browser.text("#speed"), "")
        self.assertEqual(self.sent(), [{"role": "user", "content": "hi"}])
        self.assertEqual(self.browser.text("#live"), "The answer is complete.")

    def test_stop(self):
        for how in (lambda: self.browser.click("#send"), lambda: self.browser.press("escape")):
            stream = Stream(event(content("Once upon")), is_open=True)
            self.say("story", stream)
            self.browser.wait_text(LAST + ".prose", "Once upon")
            how()
            self.browser.wait_text(LAST + ".state", "Stopped.")
            while not stream.is_closed.wait(0.02):
                stream.push(b": a comment\n\n" * 1000)
            self.assertEqual(self.browser.text(LAST + ".prose"), "Once upon")
            self.wait_idle()

    def test_regenerate_and_edit(self):
        self.converse("first", content("one"))
        self.converse("second", content("two"))
        self.server.replies.append(Stream(*answer(content("two again"))))
        self.browser.click(LAST + "button[title=Regenerate]")
        self.browser.wait_text(LAST + ".prose", "two again")
        self.wait_idle()
        self.assertEqual(self.sent(), self.sent(-2))
        self.browser.type("#prompt", ("up",))  # edits the last message
        self.browser.wait("document.activeElement.value === 'second'")
        self.browser.press("escape")
        self.assertEqual(self.browser.count(".editor"), 0)
        self.server.replies.append(Stream(*answer(content("uno"))))
        self.browser.script("document.querySelector('.turn.user button[title=Edit]').click()")
        self.browser.type(".editor textarea", " changed", ("enter",))
        self.browser.wait_text(LAST + ".prose", "uno")
        self.assertEqual(self.sent(), [{"role": "user", "content": "first changed"}])
        self.assertEqual(self.browser.count(".turn"), 2)

    def test_reasoning_folds(self):
        stream = Stream(event(thought("Hmm, ")), event(thought("a cat.")), is_open=True)
        self.say("story", stream)
        self.browser.wait_text(LAST + "summary", "^Thinking for .*, 2 tokens")
        self.assertTrue(self.browser.script("return document.querySelector('.thinking').open"))
        stream.push(event(content("Once")))
        self.browser.wait("!document.querySelector('.thinking').open")
        self.browser.click(LAST + ".thinking summary")  # opened by hand: stays open
        stream.push(*answer(content(" upon"), usage=usage(12, 9, 5)))
        stream.end()
        self.wait_idle()
        self.assertTrue(self.browser.script("return document.querySelector('.thinking').open"))
        self.assertRegex(self.browser.text(LAST + "summary"), "^Thought for .*, 5 tokens")
        self.assertEqual(self.browser.text(LAST + ".thought"), "Hmm, a cat.")

    def test_tool_calls(self):
        self.converse("weather?", thought("Need it."), *CALL, finish="tool_calls")
        self.assertEqual(self.browser.text(LAST + ".tool-name"), "Calls get_weather")
        self.assertEqual(self.browser.text(LAST + ".call code"), '{\n  "city": "Paris",\n  "days": 3\n}')
        self.browser.screenshot(SHOTS / "tools.png")
        self.server.replies.append(Stream(*answer(content("It rains."))))
        self.browser.type(LAST + ".results textarea", "rain")
        self.browser.click(LAST + ".results button")
        self.browser.wait_text(LAST + ".prose", "It rains.")
        call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris","days":3}'}}
        self.assertEqual(self.sent()[1:], [
            {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": "Need it."},
            {"role": "tool", "content": "rain", "tool_call_id": "c1"}])
        self.assertEqual(self.browser.count(".results"), 0)

    def test_receipt(self):
        self.converse("hi", content("a"), content("b"), usage=usage(75, 241, 27, 64), receipt=RECEIPT)
        self.assertEqual(self.browser.text(LAST + ".receipt summary"), "241 tokens · 1,000 tok/s")
        self.browser.click(LAST + ".receipt summary")
        shown = self.browser.text(LAST + ".receipt dl").replace("\n", " ")
        for part in ("Prompt 75 tokens", "From cache 64 tokens", "Reasoning 27 tokens", "Prefill 98 ms", "Seed 1234",
                     "Kernels gemm_bf16_avx512bf16, moe_mxfp4_avx512bf16",
                     "Ended by stop", "Request req-1"):
            self.assertIn(part, shown)

    def test_errors_are_shown_as_they_are(self):
        self.allowed = ("400", "503")
        self.say("hi", Refusal(400, "temperature: want 0 to 2, found 7"))
        self.browser.wait_text(LAST + ".error", "400 temperature: want 0 to 2, found 7")
        self.browser.screenshot(SHOTS / "error.png")
        self.server.replies.append(Refusal(503, "the queue is full: 1024 requests wait", Retry_After="1"))
        self.browser.click(LAST + ".error button")
        self.browser.wait_text(LAST + ".error", "503 the queue is full")
        broken = {"error": {"message": "the device failed", "code": "device"}}
        self.server.replies.append(Stream(event(content("Half")), b"data: " + json.dumps(broken).encode() + b"\n\n", DONE))
        self.browser.click(LAST + ".error button")
        self.browser.wait_text(LAST + ".error", "the device failed")
        self.assertEqual(self.browser.text(LAST + ".prose"), "Half")
        self.server.replies.append(Stream(event(content("Cut"))))
        self.browser.click(LAST + ".error button")
        self.browser.wait_text(LAST + ".error", "The stream ended before the answer did.")
        self.server.replies.append(Stream(b"data: {broken\n\n"))
        self.browser.click(LAST + ".error button")
        self.browser.wait_text(LAST + ".error", "not JSON")
        self.server.replies.append(Stream(*answer(content("much"), finish="length")))
        self.browser.click(LAST + ".error button")
        self.browser.wait_text(LAST + ".state", "Cut off")
        self.assertEqual(self.sent(), [{"role": "user", "content": "hi"}])

    def test_is_kept_until_cleared(self):
        self.say("hello", Stream(event(content("Hello!")), is_open=True))
        self.browser.wait_text(LAST + ".prose", "Hello!")
        self.open()  # while the answer is being written
        self.assertEqual(self.browser.text(LAST + ".state"), "Stopped.")
        self.assertEqual(self.browser.text(LAST + ".prose"), "Hello!")
        self.browser.click("#new")
        self.assertEqual(self.browser.count(".turn"), 0)
        self.browser.click("#notice button")  # undo
        self.assertEqual(self.browser.count(".turn"), 2)
        self.browser.click("#new")
        self.open()
        self.assertEqual(self.browser.count(".turn"), 0)
        self.allowed = ("favicon.ico",)
        for broken in ('[{"role":"user"}, 3', '{}', '[{"role":"assistant","content":"","calls":3}]'):
            self.browser.open(self.server.url + "page/icon.svg")  # the page itself would store what it has
            self.browser.script("localStorage.setItem('nibble.chat', arguments[0])", broken)
            self.open()
            self.browser.wait_text("#empty", "Ask anything.")

    def test_model_text_is_never_markup(self):
        hostile = ("<img src=x onerror='window.ran=1'><script>window.ran=1</script> [x](javascript:window.ran=1) "
                   "[y](https://example.org/\"onclick=window.ran=1) <https://x>\n```html\n<b onclick=x>\n```\n")
        self.converse("<i>me</i>", thought(hostile), content(hostile), *CALL[:1],
                      {"tool_calls": [{"index": 0, "function": {"arguments": "<img src=x onerror=x>"}}]}, finish="tool_calls")
        found = self.browser.script("return document.querySelectorAll('#log :is(img, script, b, i, [onclick], a[href^=javascript])').length")
        self.assertEqual(found, 0)
        self.assertIn("<script>window.ran=1</script>", self.browser.text(LAST + ".prose"))
        self.assertIsNone(self.browser.script("return window.ran ?? null"))
        self.converse("link", content("[z](https://example.org/z)"))
        link = self.browser.script("const a = document.querySelector('.turn:last-child .prose a'); return [a.href, a.rel, a.target]")
        self.assertEqual(link, ["https://example.org/z", "noopener noreferrer nofollow", "_blank"])

    def test_settings(self):
        self.browser.click("#tune")
        for name, value in {"system": "Be brief.", "temperature": "0.5", "top_k": "40", "max_tokens": "64", "seed": "7",
                            "top_p": "3", "tools": '[{"name":"f"}]'}.items():
            self.browser.type(f"#s-{name}", value)
        self.browser.script("const s = document.getElementById('s-reasoning_effort'); s.value = 'high'; s.dispatchEvent(new Event('input'))")
        self.assertEqual(self.browser.count("#s-top_p:invalid"), 1)
        self.browser.screenshot(SHOTS / "settings.png")
        self.browser.press("escape")
        self.open()
        self.converse("hi", content("Hello."))
        body = self.server.requests[-1]
        self.assertEqual({k: body.get(k) for k in ("temperature", "top_k", "max_tokens", "seed", "reasoning_effort", "top_p", "min_p")},
                         {"temperature": 0.5, "top_k": 40, "max_tokens": 64, "seed": 7, "reasoning_effort": "high", "top_p": None, "min_p": None})
        self.assertEqual(body["tools"], [{"type": "function", "function": {"name": "f"}}])
        self.assertEqual(self.sent()[0], {"role": "system", "content": "Be brief."})
        self.browser.click("#tune")
        self.browser.type("#s-tools", "broken")
        self.browser.press("escape")
        self.browser.type("#prompt", "hi", ("enter",))
        self.browser.wait_text("#notice", "Tools: ")
        self.assertEqual(len(self.server.requests), 1)

    def test_copy(self):
        self.browser.devtools("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        self.converse("code", content("Text:\n```c\nint x;\n```\n"))
        read = "const done = arguments[0]; navigator.clipboard.readText().then(done, e => done(String(e)))"
        for css, wanted in ((".code-head button", "int x;"), (".actions button[title=Copy]", "Text:\n```c\nint x;\n```\n")):
            self.browser.click(LAST + css)
            deadline = time.monotonic() + browser.WAIT_S
            while (found := self.browser.script_async(read)) != wanted:
                self.assertLess(time.monotonic(), deadline, found)

    def test_reader_who_scrolled_up_is_left_alone(self):
        stream = Stream(*[event(content(f"line {i}\n\n")) for i in range(60)], is_open=True)
        self.say("long", stream)
        self.browser.wait_text(LAST + ".prose", "line 59")
        at_end = "(s => s.scrollHeight - s.scrollTop - s.clientHeight < 60)(document.getElementById('scroller'))"
        self.browser.wait(at_end)
        self.browser.script("document.getElementById('scroller').scrollTo(0, 0)")
        self.browser.wait("!document.getElementById('latest').hidden")
        stream.push(event(content("more")))
        self.browser.wait_text(LAST + ".prose", "more")
        self.assertEqual(self.browser.script("return document.getElementById('scroller').scrollTop"), 0)
        self.browser.click("#latest")
        self.browser.wait(at_end)
        self.browser.press("escape")
        self.wait_idle()


class Using(PageCase):
    def test_keyboard(self):
        self.browser.type("#prompt", "one", ("shift", "enter"), "two")
        self.assertEqual(self.browser.script("return document.getElementById('prompt').value"), "one\ntwo")
        self.say("", Stream(*answer(content("Yes."))))
        self.wait_idle()
        self.assertEqual(self.sent(), [{"role": "user", "content": "one\ntwo"}])
        self.browser.script("document.activeElement.blur(); document.querySelector('.skip').focus()")
        order = []
        for _ in range(12):
            self.browser.press("tab")
            focus = self.browser.script("""
                const e = document.activeElement, s = getComputedStyle(e);
                const ring = s.outlineStyle !== 'none' || e.id === 'prompt';  // the box around the prompt changes instead
                return [e.id || e.title || e.getAttribute('aria-label') || e.innerText, ring]""")
            order.append(focus[0])
            self.assertTrue(focus[1], focus)
        self.assertEqual(order[:6], ["nibble", "Chat", "Status", "new", "tune", "theme"])
        self.assertIn("prompt", order)
        nameless = self.browser.script("""
            return [...document.querySelectorAll('button, a, input, select, textarea')].filter(e =>
                !(e.ariaLabel || e.innerText?.trim() || e.textContent.trim() || e.labels?.length)).map(e => e.outerHTML)""")
        self.assertEqual(nameless, [])

    def test_themes(self):
        paper = "return getComputedStyle(document.documentElement).backgroundColor"
        light = self.browser.script(paper)
        self.browser.prefer("dark")
        dark = self.browser.script(paper)
        self.assertNotEqual(light, dark)
        self.browser.click("#theme")
        self.assertEqual(self.browser.script(paper), light)
        self.open()
        self.assertEqual(self.browser.script(paper), light)
        self.browser.click("#theme")  # the same as the system: follows it again
        self.browser.prefer("light")
        self.assertEqual(self.browser.script(paper), light)

    def test_contrast(self):
        """At least 4.5 to 1 (WCAG AA) for every colour of text on what it stands on."""
        pairs = [("ink", "paper"), ("ink", "sunken"), ("soft", "paper"), ("soft", "sunken"), ("soft", "raised"),
                 ("accent", "paper"), ("accent", "raised"), ("on-accent", "accent"), ("bad", "bad-paper"), ("bad", "paper"),
                 ("second", "raised"), ("third", "raised")]
        for scheme in ("light", "dark"):
            self.browser.prefer(scheme)
            for front, back in pairs:
                colors = self.browser.script("""
                    const p = document.createElement('p'); document.body.append(p);
                    p.style.color = `var(--${arguments[0]})`; p.style.backgroundColor = `var(--${arguments[1]})`;
                    const s = getComputedStyle(p), found = [s.color, s.backgroundColor]; p.remove(); return found""", front, back)
                first, second = sorted(map(luminance, colors), reverse=True)
                self.assertGreaterEqual((first + 0.05) / (second + 0.05), 4.5, (scheme, front, back, colors))

    def test_phone(self):
        self.browser.resize(320, 640, phone=True)
        self.open()
        self.browser.screenshot(SHOTS / "phone_empty.png")
        wide = "x" * 400
        self.converse(f"What is a mixture of experts? {wide}", thought(SAMPLE_THOUGHT), content(f"{SAMPLE}\n\n{wide}\n\n```\n{wide}\n```\n"))
        self.assert_fits_width()
        self.browser.click(LAST + ".receipt summary")
        self.assert_fits_width()
        self.browser.click("#tune")
        self.assert_fits_width()
        self.browser.screenshot(SHOTS / "phone_settings.png")
        self.open("#status")
        self.browser.wait_text("#plots", "Generation")
        self.assert_fits_width()

    def test_pictures(self):
        stream = Stream(*[event(thought(p)) for p in pieces(SAMPLE_THOUGHT)], is_open=True)
        self.browser.wait_text("#model", "demo")
        self.browser.screenshot(SHOTS / "empty.png")
        self.say("What is a mixture of experts?", stream)
        self.browser.wait_text(LAST + ".thought", "code")
        self.browser.screenshot(SHOTS / "thinking.png")
        stream.push(*[event(content(p)) for p in pieces(SAMPLE[:400])])
        self.browser.wait_text(LAST + ".prose", "120b")
        self.browser.screenshot(SHOTS / "streaming.png")
        stream.push(*[event(content(p)) for p in pieces(SAMPLE[400:])], *answer(usage=usage(75, 241, 27, 64), receipt=RECEIPT))
        stream.end()
        self.wait_idle()
        self.browser.screenshot(SHOTS / "chat_light.png")
        self.browser.prefer("dark")
        self.browser.screenshot(SHOTS / "chat_dark.png")
        self.browser.resize(320, 640, phone=True)
        self.browser.screenshot(SHOTS / "phone.png")


def luminance(color):
    channels = [int(c) / 255 for c in color[color.index("(") + 1:-1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


class Status(PageCase):
    def metrics(self):
        """Time goes on by one reading a call: 120 tokens, 5 requests and their latencies each."""
        self.readings += 1
        n = self.readings
        values = {"prompt_tokens_total": 900 * n, "generation_tokens_total": 120 * n, "num_requests_running": 6,
                  "num_requests_waiting": 3, "kv_cache_usage_perc": 0.42, "prefix_cache_queries_total": 900 * n,
                  "prefix_cache_hits_total": 675 * n, "num_preemptions_total": 2}
        return metrics_text(values, {"time_to_first_token_seconds": [0.15, 0.2, 0.3, 0.4, 3.0] * n,
                                     "inter_token_latency_seconds": [0.015] * 9 * n,
                                     "e2e_request_latency_seconds": [1.5, 7.0] * n},
                            {"stop": 4 * n, "length": n, "abort": 0})

    def setUp(self):
        super().setUp()
        self.readings = 0
        self.server.metrics = self.metrics

    def open_fast(self):
        """With a clock that runs 20 times as fast, so that a minute of plots takes seconds."""
        self.open()
        self.browser.script("""
            const now = performance.now.bind(performance), start = now(), set = window.setTimeout;
            performance.now = () => start + 20 * (now() - start);
            window.setTimeout = (f, ms, ...more) => set(f, ms / 20, ...more);
            location.hash = '#status';""")

    def plot(self, title):
        return self.browser.script("""
            const plot = [...document.querySelectorAll('.plot')].find(p => p.querySelector('.title').innerText === arguments[0]);
            return plot && [plot.querySelector('.keys').innerText.replace(/\\s+/g, ' '), plot.querySelector('.line').getAttribute('d')]""", title)

    def test_plots(self):
        self.open_fast()
        self.browser.wait("(document.querySelector('.line')?.getAttribute('d') ?? '').split('L').length > 40")
        # 0.15, 0.2, 0.3, 0.4 and 3 s: by the edges 0.1, 0.25, 0.5, 2.5 and 5, with 2, 2 and 1 observations.
        self.assertEqual(self.plot("Time to first token")[0].strip(), "p50 313 ms p90 3.8 s p99 4.9 s")
        self.assertEqual(self.plot("Between tokens")[0].strip(), "p50 15 ms p90 19 ms p99 20 ms")
        self.assertEqual(self.plot("Whole request")[0].strip(), "p50 2.5 s p90 9.0 s p99 9.9 s")
        self.assertEqual(self.plot("Requests")[0].strip(), "running 6 waiting 3")
        self.assertEqual(self.plot("Cache in use")[0].strip(), "42 %")
        self.assertEqual(self.plot("Prefix cache hits")[0].strip(), "75 %")
        self.assertRegex(self.plot("Generation")[0], r"^\d+ tok/s")
        totals = self.browser.text("#totals")
        n = int(totals.split("\n")[1].replace(",", "")) / 5
        self.assertIn(f"{4 * n:,.0f} stop, {n:,.0f} length", totals)
        self.browser.screenshot(SHOTS / "status_light.png")
        self.browser.prefer("dark")
        self.browser.screenshot(SHOTS / "status_dark.png")
        self.browser.resize(320, 640, phone=True)
        self.assert_fits_width()
        self.browser.screenshot(SHOTS / "status_phone.png")

    def test_says_when_metrics_fail_and_recovers(self):
        self.allowed = ("ERR_", "500")
        def fail():
            raise ConnectionError
        self.server.metrics = fail
        self.open_fast()
        self.browser.wait_text("#status-note", "Trying again")
        self.server.metrics = self.metrics
        self.browser.wait("document.getElementById('status-note').innerText.trim() === ''")

    def test_asks_only_while_shown(self):
        self.open_fast()
        self.browser.wait("document.querySelectorAll('#totals dd').length > 0")
        self.browser.click("nav a[href='#chat']")
        before = self.readings
        self.browser.script_async("window.setTimeout(arguments[0], 8000)")  # eight polls of the fast clock
        self.assertLessEqual(self.readings - before, 1)  # one was on its way


if __name__ == "__main__":
    unittest.main()
