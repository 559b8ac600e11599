"""An answer is the same, to the last bit of its log-probabilities, alone and among others."""
import concurrent.futures
import json
import random
import unittest

from program import Case
from server import Server, chat_body

STORY = "Once upon a time there was a little dog who lived near the sea."
# What is watched: greedy and seeded, with and without penalties, a chat, a prompt of many pages.
WATCHED = [
    ("/v1/completions", {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 40}),
    ("/v1/completions", {"prompt": "The cat", "seed": 7, "temperature": 1, "max_tokens": 40}),
    ("/v1/completions", {"prompt": STORY * 8, "seed": 8, "temperature": 1.2, "top_p": 0.9,
                         "max_tokens": 40}),
    ("/v1/completions", {"prompt": STORY * 3, "seed": 9, "temperature": 1, "max_tokens": 40,
                         "frequency_penalty": 0.5, "repetition_penalty": 1.2, "n": 2}),
]
WATCHED_CHAT = chat_body("Tell me a story.", seed=11, max_tokens=60, logprobs=True,
                         top_logprobs=3) | {"temperature": 1}


def answers(server):
    """Texts and every log-probability, as the JSON has them: shortest decimals of the very bits."""
    found = []
    for path, body in [*WATCHED, ("/v1/chat/completions", WATCHED_CHAT)]:
        status, _, reply = server.post(path, {"logprobs": 2} | body)
        assert status == 200, reply
        found.append([(choice.get("text"), choice.get("message"), choice["logprobs"],
                       choice["finish_reason"]) for choice in reply["choices"]])
    return found


def other(server, number):
    """One of the others: of any length, some that begin as a watched one does, some cut short."""
    dice = random.Random(number)
    begin = dice.choice([STORY * dice.randint(1, 8), "Once upon a time", f"Number {number} is"])
    body = {"prompt": begin + " x" * dice.randint(0, 60), "temperature": 1, "seed": number,
            "max_tokens": dice.randint(1, 60), "stream": True}
    if number % 5 == 0:  # leaves in the middle
        sock = server.raw()
        head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: "
        text = json.dumps(body)
        sock.sendall(f"{head}{len(text)}\r\n\r\n{text}".encode())
        sock.recv(100)
        sock.close()
    else:
        server.events("/v1/completions", body)


class Determinism(Case):
    def test_alone_and_among_sixty_four_others(self):
        with Server("--deterministic", "--max-model-len", 512, "--max-num-seqs", 16,
                    "--max-num-batched-tokens", 128) as server:
            server.wait_for_log(r"\bready\b.*deterministic=1")
            alone = answers(server)
            with concurrent.futures.ThreadPoolExecutor(64) as pool:
                others = [pool.submit(other, server, number) for number in range(64)]
                among = answers(server)
                again = answers(server)
                for one in others:
                    one.result()
            self.assertEqual(among, alone)
            self.assertEqual(again, alone)
            self.assertGreater(server.metric("prefix_cache_hits_total"), 0)
            server.wait_until_idle()
        # Another process, other chunks of the prompts, one thread, no cache of prefixes.
        with Server("--deterministic", "--max-model-len", 512, "--max-num-seqs", 2, "--threads", 1,
                    "--max-num-batched-tokens", 48, "--no-enable-prefix-caching") as server:
            self.assertEqual(answers(server), alone)


if __name__ == "__main__":
    unittest.main()
