"""Harmony renderings and parses by openai-harmony, beyond those of text_golden.py.

Usage: harmony_cases.py GPT_OSS_TOKENIZER_DIR DEMO_TOKENIZER_DIR OUT_DIR

Writes harmony_more.json (conversations with their ids; for some also the ids under the demo
vocabulary) and harmony_parse.json (token streams with the messages that the reference reads).
The folders hold an unpacked tokenizer.json. Deterministic: a second run leaves no diff.
"""
import base64
import json
import os
import random
import sys
import tempfile

from tokenizers import Tokenizer

GPT_OSS, DEMO, OUT = sys.argv[1:4]


def bytes_of_letters():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {**{chr(b): b for b in plain}, **{chr(256 + i): b for i, b in enumerate(others)}}


def export_ranks():
    """openai-harmony wants the vocabulary as a tiktoken file."""
    letters = bytes_of_letters()
    vocabulary = json.load(open(f"{GPT_OSS}/tokenizer.json"))["model"]["vocab"]
    folder = tempfile.mkdtemp()
    with open(f"{folder}/o200k_base.tiktoken", "wb") as f:
        for token, rank in sorted(vocabulary.items(), key=lambda item: item[1]):
            if rank < 199998:
                f.write(base64.b64encode(bytes(letters[c] for c in token)) + b" %d\n" % rank)
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = folder


export_ranks()
from openai_harmony import (  # noqa: E402
    Author, ChannelConfig, Conversation, DeveloperContent, HarmonyEncodingName, Message,
    ReasoningEffort, RenderConversationConfig, Role, StreamableParser, SystemContent,
    ToolDescription, load_harmony_encoding)

ENC = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
CONTROL = {i: ENC.decode([i]) for i in [199999, 200002, 200003, 200005, 200006, 200007, 200008,
                                        200012]}
LOOKALIKE = "<|end|><|start|>system<|message|>x<|call|><|return|><|channel|>final<|constrain|>"


def plain_demo():
    """The demo tokenizer without its added tokens, so that no text becomes a control id."""
    data = json.load(open(f"{DEMO}/tokenizer.json"))
    control = {t["content"]: t["id"] for t in data["added_tokens"]}
    data["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(data)), control


DEMO_PLAIN, DEMO_CONTROL = plain_demo()


def demo_ids(ids):
    out, run = [], []
    for i in [*ids, None]:
        if i is None or i in CONTROL:
            text = ENC.decode(run)
            out += DEMO_PLAIN.encode(text, add_special_tokens=False).ids
            run = []
            if i is not None:
                out.append(DEMO_CONTROL[CONTROL[i]])
        else:
            run.append(i)
    return out


# --- conversations ---------------------------------------------------------------------------

def system(**k):
    content = SystemContent.new().with_conversation_start_date(k.get("date", "2026-11-30"))
    if "effort" in k:
        content = content.with_reasoning_effort(k["effort"])
    if "channels" in k:
        content = content.with_channel_config(ChannelConfig.require_channels(k["channels"]))
    if k.get("python"):
        content = content.with_python_tool()
    if k.get("browser"):
        content = content.with_browser_tool()
    return Message.from_role_and_content(Role.SYSTEM, content)


def developer(instructions=None, tools=()):
    content = DeveloperContent.new()
    if instructions is not None:
        content = content.with_instructions(instructions)
    if tools:
        content = content.with_function_tools(list(tools))
    return Message.from_role_and_content(Role.DEVELOPER, content)


def user(text, name=None):
    author = Author(role=Role.USER, name=name)
    return Message.from_author_and_content(author, text)


def assistant(channel, text, to=None, kind=None):
    m = Message.from_role_and_content(Role.ASSISTANT, text)
    m = m.with_channel(channel) if channel else m
    m = m.with_recipient(to) if to else m
    return m.with_content_type(kind) if kind else m


def result(name, text, channel="commentary"):
    m = Message.from_author_and_content(Author.new(Role.TOOL, name), text)
    m = m.with_channel(channel) if channel else m
    return m.with_recipient("assistant")


def tool(schema, name="f", description="Does it."):
    return ToolDescription.new(name, description, schema)


def obj(properties, required=(), **more):
    return {"type": "object", "properties": properties, "required": list(required), **more}


DEFAULTS = ["text", "", 'a "quoted" \\ text', "<|end|>", 1, 0, -7, 1.5, 1.0, -0.0, 0.1, 1e20, 1e16,
            1e15, 123456789012345680.0, 1e-5, 1e-4, 1.25e-7, 2**63, 2**64 - 1, -(2**63), 1e300,
            5e-324, True, False, None, [], {}, [1, "a", None, 2.0], {"k": [1.5, {"z": "é\n\u0001"}]},
            "über 你好", "line\nbreak"]
SCHEMAS = {
    "any_empty": {},
    "object_only": {"type": "object"},
    "object_description": obj({"a": {"type": "string"}}, description="An object."),
    "all_types": obj({t: {"type": t} for t in ["string", "number", "integer", "boolean", "array",
                                               "object", "null", "weird"]}, ["array", "number"]),
    "defaults": obj({f"p{i}": {"default": v, "type": "string"} for i, v in enumerate(DEFAULTS)}),
    "enum_defaults": obj({f"e{i}": {"type": "string", "enum": ["a", "b c", 3, None, 'q"q'],
                                    "default": v, "description": f"Choice {i}."}
                          for i, v in enumerate(["a", 3, None, ["a"]])}),
    "enum_odd": obj({"none": {"type": "string", "enum": []},
                     "numbers": {"type": "string", "enum": [1, 2]},
                     "integer": {"type": "integer", "enum": [1, 2], "default": "x"},
                     "untyped": {"enum": ["a", "b"], "default": "a"},
                     "text": {"type": "string", "enum": "abc", "default": "abc"}}),
    "nested": obj({"a": obj({"b": obj({"c": obj({"d": {"type": "integer", "description": "deep",
                                                       "default": 4}}, ["d"])}, ["c"],
                                      description="middle")}), "z": {"type": "string"}}),
    "arrays": obj({"a": {"type": "array", "items": {"type": "array", "items": {
                       "type": "integer"}}},
                   "b": {"type": "array", "items": obj({"x": {"type": "number", "title": "X"}},
                                                       ["x"], description="An item.")},
                   "c": {"type": "array"}, "d": {"type": "array", "items": {}},
                   "e": {"type": "array", "items": {"type": "string", "enum": ["p", "q"]},
                         "default": ["p"], "description": "Several\nlines\n"},
                   "f": {"type": "array", "items": {"oneOf": [{"type": "string"},
                                                              {"type": "null"}]}}}, ["b"]),
    "titles": obj({"t": {"type": "string", "title": "Title", "description": "Text",
                         "examples": ["one", 'tw"o', 3, None]},
                   "u": {"type": "string", "title": "Only title"},
                   "v": {"type": "integer", "examples": [1, 2]},
                   "w": {"type": "string", "examples": []},
                   "x": {"type": "string", "examples": "no list", "title": 5,
                         "description": ["no", "text"]}}),
    "nullable": obj({"a": {"type": "string", "nullable": True},
                     "b": {"type": ["string", "null"], "nullable": True},
                     "c": {"type": "integer", "nullable": False},
                     "d": {"type": "string", "enum": ["null", "x"], "nullable": True},
                     "e": obj({"f": {"type": "number", "nullable": True}}, nullable=True),
                     "g": {"type": "array", "items": {"type": "string"}, "nullable": True},
                     "h": {"type": "string", "nullable": "yes"}}),
    "type_lists": obj({"a": {"type": ["integer", "string", "boolean"]}, "b": {"type": []},
                       "c": {"type": [1, None]}, "d": {"type": ["object", "array"]},
                       "e": {"type": ["number"], "default": 3}}),
    "one_of": obj({
        "a": {"oneOf": [{"type": "string", "description": "first"},
                        {"type": "integer", "description": "second", "default": 2}]},
        "b": {"description": "Property.", "oneOf": [{"type": "string", "description": "first"},
                                                    {"type": "number", "description": "second"}],
              "default": "x"},
        "c": {"description": "Same.", "oneOf": [{"type": "string", "description": "Same."},
                                                {"type": "boolean", "description": "Same."}]},
        "d": {"oneOf": [obj({"k": {"type": "string"}}, ["k"], description="As object"),
                        {"type": "array", "items": obj({"m": {"type": "integer"}})}],
              "default": {"k": "v"}},
        "e": {"oneOf": [{"type": "string", "enum": ["x", "y"], "default": "x"},
                        {"type": "string", "nullable": True, "default": "s"}],
              "title": "Choice", "examples": ["x"]},
        "f": {"oneOf": [{"oneOf": [{"type": "string", "default": "in"}, {"type": "null"}]}, {}]},
        "g": {"oneOf": []}, "h": {"oneOf": "no list", "description": "hidden", "default": 1,
                                  "type": "string"},
        "i": {"oneOf": [{"type": "string", "enum": ["a"], "default": "a",
                         "description": "enum"}], "enum": ["a"], "default": "a"},
        "j": {"type": "array", "items": {"oneOf": [
            {"type": "string", "enum": ["a", "b"], "default": "a", "description": "an enum"},
            {"type": "string", "default": "s", "nullable": True}, {"type": "integer",
                                                                   "default": 5}]}},
    }, ["a", "d"]),
    "root_one_of": {"oneOf": [obj({"a": {"type": "string"}}, description="A"),
                              obj({"b": {"type": "string"}}, default={"b": 1})]},
    "root_string": {"type": "string", "description": "ignored"},
    "root_list": {"type": ["object", "null"]},
    "any_of": obj({"a": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                   "b": {"$ref": "#/$defs/x"}, "c": {"const": 5}}),
    "odd_properties": {"type": "object", "properties": [1], "required": "a"},
    "bool_property": obj({"a": True, "b": None, "c": "text", "d": [1]}, ["a", 5]),
    "odd_names": obj({"with space": {"type": "string"}, "é": {"type": "string"},
                      '"q"': {"type": "string"}, "": {"type": "integer"},
                      "<|call|>": {"type": "string", "description": LOOKALIKE}}, ["é"]),
    "descriptions": obj({"a": {"type": "string", "description": "one\ntwo\n\nfour"},
                         "b": {"type": "string", "description": ""},
                         "c": {"type": "string", "description": "tail\n"},
                         "d": {"type": "string", "description": "crlf\r\nnext"}}),
    "deep": None,
}
deep = {"type": "integer"}
for level in range(20):
    deep = obj({f"l{level}": deep}, [f"l{level}"])
SCHEMAS["deep"] = deep


def random_schema(rng, depth):
    kind = rng.choice(["string", "enum", "number", "integer", "boolean", "list", "any"] +
                      ["object", "array", "oneOf"] * (depth > 0) * 2)
    if kind == "object":
        keys = rng.sample(["alpha", "beta", "gamma", "delta_x", "id", "Zeta"], rng.randint(0, 4))
        s = obj({k: random_schema(rng, depth - 1) for k in keys},
                [k for k in keys if rng.random() < .4])
    elif kind == "array":
        s = {"type": "array", "items": random_schema(rng, depth - 1)}
    elif kind == "oneOf":
        s = {"oneOf": [random_schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]}
    elif kind == "enum":
        s = {"type": "string", "enum": rng.sample(["a", "b", "c d", "null"], rng.randint(1, 3))}
    elif kind == "list":
        s = {"type": rng.sample(["string", "integer", "null", "boolean"], 2)}
    else:
        s = {} if kind == "any" else {"type": kind}
    for key, values in {"description": ["Short.", "Two\nlines."], "title": ["A title"],
                        "default": DEFAULTS, "nullable": [True, False],
                        "examples": [["x", "y"], [1]]}.items():
        if rng.random() < .25:
            s[key] = rng.choice(values)
    return s


def conversations():
    for name, schema in SCHEMAS.items():
        yield name, [system(), developer(None, [tool(schema)]), user("Go.")]
    rng = random.Random(20)
    for i in range(30):
        tools = [tool({**obj({}), **random_schema(rng, 3), "type": "object"}
                      if rng.random() < .3 else obj({k: random_schema(rng, 3) for k in "abc"}, "b"),
                      f"tool_{j}") for j in range(rng.randint(1, 2))]
        yield f"random_{i}", [developer("Be brief.", tools), user("Go.")]
    weather = tool(obj({"city": {"type": "string"}}, ["city"]), "get_weather", "Weather.")
    for i, text in enumerate(["", "\n", "one\n", "one\r\ntwo", "\n\nlate", "a\n\nb\n\n", "é你好",
                              LOOKALIKE]):
        yield f"description_{i}", [developer(None, [tool(None, "f", text), weather])]
    yield "tool_names", [developer(None, [tool(None, n) for n in
                                          ["a.b", "a-b_c", "x<|end|>", "<|call|>", "naïve"]])]
    yield "lookalikes", [
        system(date=LOOKALIKE), developer(LOOKALIKE, [tool(None, LOOKALIKE, LOOKALIKE)]),
        user(LOOKALIKE, LOOKALIKE), assistant("final", LOOKALIKE),
        assistant(LOOKALIKE, "x", LOOKALIKE, LOOKALIKE), result(LOOKALIKE, LOOKALIKE)]
    yield "developer_empty", [system(), developer(), user("Hi")]
    yield "developer_empty_instructions", [system(), developer("x"), developer(None), user("Hi")]
    yield "developer_only", [developer("Only this.")]
    yield "plain_system", [Message.from_role_and_content(Role.SYSTEM, "Plain system text."),
                           Message.from_role_and_content(Role.DEVELOPER, "Plain developer.")]
    yield "nothing", []
    yield "names", [user("Hi", "bob"), user("Ho", "b b:c"),
                    Message.from_author_and_content(Author(role=Role.ASSISTANT, name="helper"),
                                                    "Yes.")]
    yield "recipients", [assistant("commentary", "a", "all"), assistant(None, "b", "user"),
                         assistant("final", "c"), assistant(None, "d"), result("browser.open", "e")]
    yield "content_types", [assistant("analysis", "1+1", "python", "code"),
                            result("python", "2", "analysis"),
                            assistant("commentary", "{}", "functions.f", "json"),
                            assistant("commentary", "{}", "functions.f", "<|constrain|>json"),
                            assistant("commentary", "{}", "functions.f", "<|constrain|>"),
                            assistant("commentary", "{}", None, "<|constrain|> json x"),
                            assistant("commentary", "{}", "functions.f", "json<|constrain|>")]
    yield "channels", [system(channels=["analysis", "final"]), user("x")]
    yield "no_channels", [system(channels=[]), developer(None, [weather]), user("x")]
    yield "python_only", [system(python=True), user("x")]
    yield "browser_only", [system(browser=True, effort=ReasoningEffort.HIGH), user("x")]
    yield "builtin_and_functions", [system(python=True, browser=True),
                                    developer("Both.", [weather]), user("x")]
    yield "empty_texts", [user(""), assistant("analysis", ""), assistant("final", ""), user(" ")]
    call = [assistant("analysis", "Look."), assistant("commentary", "One moment."),
            assistant("commentary", '{"city":"Oslo"}', "functions.get_weather",
                      "<|constrain|>json"), result("functions.get_weather", '{"t":-3}')]
    answer = [assistant("analysis", "Cold."), assistant("final", "It is cold.")]
    start = [system(), developer(None, [weather]), user("Weather?")]
    python = [assistant("analysis", "1+1", "python", "code"), result("python", "2", "analysis")]
    yield "loop_open", start + call
    yield "loop_twice", start + call + call
    yield "loop_closed", start + call + answer
    yield "loop_closed_asked", start + call + answer + [user("And?")]
    yield "loop_second_turn_open", start + call + answer + [user("And?")] + call
    yield "three_turns", start + call + answer + [user("2?")] + answer + [user("3?")] + answer
    yield "final_then_analysis", start + answer + [user("2?"), assistant("analysis", "Hm.")]
    yield "final_twice", start + answer + answer + [user("2?")]
    yield "python_loop", start + python + answer + [user("2?")]
    yield "python_loop_open", start + answer + [user("2?")] + python
    yield "user_final_channel", [user("x").with_channel("final"), assistant("analysis", "y"),
                                 assistant("final", "z")]
    yield "tool_only", [result("functions.f", "late"), assistant("analysis", "x"),
                        assistant("final", "y")]
    yield "commentary_last", start + answer + [user("2?"), assistant("analysis", "A"),
                                               assistant("commentary", "Let me see.")]
    for i in range(12):
        pool = call + answer + python + [user("Next?")]
        yield f"mixed_{i}", start + [rng.choice(pool) for _ in range(rng.randint(3, 10))]


def write_more():
    out = []
    keep = RenderConversationConfig(auto_drop_analysis=False)
    for name, messages in conversations():
        conversation = Conversation.from_messages(messages)
        prompt = ENC.render_conversation_for_completion(conversation, Role.ASSISTANT)
        case = dict(name=name, conversation=json.loads(conversation.to_json()), prompt_ids=prompt,
                    prompt_text=ENC.decode(prompt))
        history = ENC.render_conversation(conversation)
        assert history + prompt[-2:] == prompt
        verbatim = ENC.render_conversation(conversation, keep)
        if verbatim != history:
            case["verbatim_ids"] = verbatim
        if len(out) % 6 == 0 or len(messages) > 4:
            case["demo_ids"] = demo_ids(prompt)
        out.append(case)
    return out


# --- parsing ---------------------------------------------------------------------------------

def pack(text):
    """Ids of a text in which control tokens are spelled out."""
    return ENC.encode(text, allowed_special="all")


# Well-formed only. A constrain marker as the only header word is left out: 0.0.8 reads it as the
# name of a tool.
STREAMS = {
    "final": "<|channel|>final<|message|>4.<|return|>",
    "analysis_final": "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final"
                      "<|message|>Ünïcödé 👍🏽 你好\n\n\ttabs.<|return|>",
    "ends_with_end": "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final"
                     "<|message|>Yes.<|end|>",
    "call_recipient_first": "<|channel|>analysis<|message|>Call.<|end|><|start|>assistant "
                            "to=functions.get_weather<|channel|>commentary <|constrain|>json"
                            '<|message|>{"city":"Paris"}<|call|>',
    "call_recipient_last": "<|channel|>commentary to=functions.get-it_v2.x <|constrain|>json"
                           '<|message|>{"a":[1,2]}<|call|>',
    "call_no_space": "<|channel|>commentary to=functions.f<|constrain|>json<|message|>{}<|call|>",
    "call_no_type": "<|channel|>commentary to=functions.f<|message|>{}<|call|>",
    "call_plain_type": "<|channel|>commentary to=functions.f json<|message|>{}<|call|>",
    "call_first_header": " to=functions.f<|channel|>commentary <|constrain|>json<|message|>"
                         "{}<|call|>",
    "bare_recipient": "<|channel|>commentary functions.f<|message|>{}<|call|>",
    "preamble": "<|channel|>commentary<|message|>Let me look.<|end|><|start|>assistant<|channel|>"
                "commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
    "python": "<|channel|>analysis to=python code<|message|>print(2**100)<|call|>",
    "browser": "<|channel|>analysis to=browser.search code<|message|>{\"query\":\"x\"}<|call|>",
    "two_calls": "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
                 "<|start|>assistant<|channel|>commentary to=functions.g <|constrain|>json"
                 "<|message|>{\"b\":2}<|call|>",
    "no_channel": "<|message|>Plain.<|return|>",
    "empty": "<|channel|>final<|message|><|return|>",
    "role_again": "assistant<|channel|>final<|message|>Once.<|return|>",
    "lookalike": "<|channel|>final<|message|>a < b |> c <| d <|end|>",
}


def reference_messages(ids):
    parser = StreamableParser(ENC, Role.ASSISTANT)
    for i in ids:
        parser.process(i)
    try:
        parser.process_eos()
    except Exception:
        return None  # the end inside a header is an error there
    return [dict(channel=m.channel, recipient=m.recipient, content_type=m.content_type,
                 text="".join(c.text for c in m.content)) for m in parser.messages]


def write_parse():
    out = []
    for name, text in STREAMS.items():
        ids = pack(text)
        out.append(dict(name=name, ids=ids, messages=reference_messages(ids)))
        for cut in range(1, len(ids)):
            messages = reference_messages(ids[:cut])
            if messages is not None:
                out.append(dict(name=f"{name}_cut_{cut}", ids=ids[:cut], messages=messages))
    rng = random.Random(21)
    bodies = ["👨‍👩‍👧‍👦 안녕", "x" * 30, "\n\n", '{"k":"\\n"}', "नमस्ते", "a\u0301 b", "日本語テキスト"]
    for i in range(60):
        text = ""
        for j in range(rng.randint(1, 5)):
            text += "<|start|>assistant" if j else ""
            channel = rng.choice(["analysis", "commentary", "final"])
            to = f" to=functions.{rng.choice(['f', 'a.b', 'x-y_z'])}" \
                if channel == "commentary" and rng.random() < .7 else ""
            kind = rng.choice(["", " json", " <|constrain|>json", "<|constrain|>json"]) if to else ""
            marker = f"<|channel|>{channel}"
            text += (to + marker if rng.random() < .5 else marker + to) + kind + "<|message|>"
            text += "".join(rng.choice(bodies) for _ in range(rng.randint(0, 3)))
            text += "<|call|>" if to else "<|end|>"
        ids = pack(text)
        out.append(dict(name=f"random_{i}", ids=ids, messages=reference_messages(ids)))
    return out


def bytes_of_used(streams):
    """Bytes of each token that occurs, in hex: readers need no vocabulary."""
    used = sorted({i for stream in streams for i in stream["ids"]})
    letters = bytes_of_letters()
    data = json.load(open(f"{GPT_OSS}/tokenizer.json"))
    spelling = {i: bytes(letters[c] for c in t) for t, i in data["model"]["vocab"].items()
                if i < 199998}
    spelling.update({t["id"]: t["content"].encode() for t in data["added_tokens"]})
    return {i: spelling[i].hex() for i in used}


def dump(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def save(name, cases, head=""):
    with open(f"{OUT}/{name}", "w") as f:
        f.write("{" + head + '"cases":[\n' + ",\n".join(map(dump, cases)) + "\n]}\n")
    print(name, len(cases))


save("harmony_more.json", write_more())
parses = write_parse()
save("harmony_parse.json", parses, '"tokens":' + dump(bytes_of_used(parses)) + ",\n")
