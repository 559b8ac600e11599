"""Seeded clients that do everything wrong: what they send, how they send it, how they leave."""
import json
import random
import re
import socket
import ssl
import struct
import time

from program import TIMEOUT_S

PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/tokenize",
         "/detokenize", "/v1/models", "/health", "/metrics", "/", "/v1/responses/x/cancel", "/%00",
         "/v1/chat/completions?x=1", "/v1/responses/x", "/live", "/v1/messages/count_tokens"]
# Whatever else a status may be: 500 would be a mistake of the server's.
STATUSES = {200, 204, 304, 400, 404, 405, 408, 413, 417, 431, 503, 505}
GARBAGE = [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\r\n" * 50, b"\x00" * 300,
           b"GET", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 2000,
           b"POST /v1/completions HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcdef",
           b"POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
           b"POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5;" + b"x" * 200000,
           b"POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n"
           b"0\r\n\r\n", b"GET /\x80\xff HTTP/1.1\r\n\r\n", b"get / http/1.1\r\n\r\n",
           b"GET http://other/health HTTP/1.1\r\nhost: x\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n"]


def random_value(chance, depth=0):
    kind = chance.randrange(12)
    if kind < 2 and depth < 4:
        return [random_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind < 4 and depth < 4:
        return {chance.choice(["role", "content", "type", "text", "x", "id"]):
                random_value(chance, depth + 1) for _ in range(chance.randrange(4))}
    return chance.choice([None, True, False, 0, -1, 1.5, 1e308, 2 ** 31, 2 ** 63, 2 ** 64, "", "a",
                          "\u0000", "\ud7ff\U0001F63A", "<|start|>", "x" * 300, "user", "text"])


def random_body(chance):
    """A good request with some fields spoilt."""
    body = {"messages": [{"role": "user", "content": "hi"}], "prompt": "Once", "input": "hi",
            "max_tokens": chance.choice([1, 5, 40]), "temperature": 1, "tokens": [1, 2],
            "stream": chance.random() < 0.5}
    names = list(body) + ["n", "seed", "stop", "logit_bias", "tools", "tool_choice", "logprobs",
                          "top_logprobs", "model", "stream_options", "stop_token_ids", "echo",
                          "reasoning", "previous_response_id", "system", "thinking", "metadata",
                          "response_format", "max_output_tokens", "store", "receipt"]
    for _ in range(chance.randrange(4)):
        body[chance.choice(names)] = random_value(chance)
    data = json.dumps(body).encode()
    if chance.random() < 0.2:  # no longer JSON, or no longer UTF-8
        at = chance.randrange(len(data))
        data = data[:at] + bytes([chance.randrange(256)]) + data[at + chance.randrange(3):]
    return data


def random_request(chance):
    if chance.random() < 0.08:
        return chance.choice(GARBAGE)
    body = random_body(chance)
    method = chance.choice(["POST"] * 8 + ["GET", "DELETE", "OPTIONS", "HEAD", "PUT", "BREW"])
    head = f"{method} {chance.choice(PATHS)} HTTP/1.1\r\nhost: x\r\n".encode()
    if chance.random() < 0.15:
        size = len(body) // 3 + 1
        body = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + size]), body[i:i + size])
                        for i in range(0, len(body), size)) + b"0\r\n\r\n"
        head += b"transfer-encoding: chunked\r\n"
    else:  # a few say more or less than they send
        head += b"content-length: %d\r\n" % (len(body) + chance.choice([0] * 12 + [-3, 7]))
    if chance.random() < 0.1:
        head += b"expect: 100-continue\r\n"
    if chance.random() < 0.8:
        head += b"connection: close\r\n"
    data = head + b"\r\n" + body
    if chance.random() < 0.15:
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(data))
            data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1:]
    return data


def check_reply(data):
    """Reads one reply and returns what follows it; None when it is cut."""
    head, end, rest = data.partition(b"\r\n\r\n")
    if not end:
        return None
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", head)
    if not found:
        raise AssertionError(f"no reply: {head[:200]}")
    status = int(found[1])
    if status == 100:
        return rest
    if status not in STATUSES:
        raise AssertionError(f"status {status}: {data[:400]}")
    if b"transfer-encoding: chunked" in head:
        body = b""
        while True:
            size, end, rest = rest.partition(b"\r\n")
            if not end or len(rest) < int(size, 16) + 2:
                return None
            count = int(size, 16)
            body, rest = body + rest[:count], rest[count + 2:]
            if count == 0:
                break
    else:
        length = re.search(rb"content-length: (\d+)", head)
        count = int(length[1]) if length else 0
        if len(rest) < count:
            return None
        body, rest = rest[:count], rest[count:]
    text = body.decode("utf-8", "strict")
    if b"application/json" in head and text:
        json.loads(text)
    return rest


def read_until_closed(client, pause=0.0, at_most=None):
    """Everything up to the end of the connection, which must come."""
    data = b""
    try:
        while piece := client.recv(64 if pause else 65536):
            data += piece
            if at_most is not None and len(data) >= at_most:
                break
            time.sleep(pause)
    except ConnectionError:
        pass
    except socket.timeout:
        raise AssertionError(f"nothing for {TIMEOUT_S} s, after {data[-300:]}") from None
    return data


def reset(client):
    """Leaves without a good-bye."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def deliver(client, data, chance):
    """False: the client has left, whatever was to come."""
    way = chance.randrange(12)
    if way < 2:  # leaves in the middle of an upload
        client.sendall(data[:chance.randrange(len(data))])
        if way == 1:
            reset(client)
        return False
    if way < 4:  # asks and leaves
        client.sendall(data)
        time.sleep(0.01 * chance.random())
        if way == 3:
            reset(client)
        return False
    if way == 4:  # half a connection
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
    elif way == 5:  # in small pieces
        for i in range(0, len(data), 97):
            client.sendall(data[i:i + 97])
    elif way == 6:  # begins, and goes to sleep
        client.sendall(data[:chance.randrange(1, 60)])
    elif way == 7:  # reads slowly, and leaves in the end
        client.sendall(data)
        read_until_closed(client, 0.004 * chance.random(), chance.randrange(1, 3000))
        return False
    elif way == 8:  # does not read, for a while
        client.sendall(data)
        time.sleep(0.3 * chance.random())
    else:
        client.sendall(data)
    return True


def misbehave(port, seed, number, tls=None):
    """One client. Raises when what it gets is no HTTP, or when it gets no end."""
    chance = random.Random(f"{seed}:{number}")
    client = socket.socket()
    client.settimeout(TIMEOUT_S)
    if chance.random() < 0.3:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    try:
        client.connect(("127.0.0.1", port))
        if tls is not None and chance.random() < 0.9:
            client = tls.wrap_socket(client)
        data = b"".join(random_request(chance) for _ in range(chance.choice([1, 1, 1, 3])))
        if deliver(client, data, chance):
            replies = read_until_closed(client)
            while replies and b"HEAD " not in data and not isinstance(client, ssl.SSLSocket):
                replies = check_reply(replies)
    except (ConnectionError, ssl.SSLError):
        pass
    except AssertionError as fault:
        raise AssertionError(f"seed {seed}:{number}: {fault}") from None
    finally:
        client.close()
