#!/usr/bin/env python3
"""Schemas, texts, and whether each text is JSON that is valid, by jsonschema 4.26.0 (draft 2020-12).

    json_schema_cases.py tests/golden/json_schema.json

`generated` says whether nibble may produce the text: of valid texts some spellings are left out on
purpose (other orders of properties, other white space); those are listed here by hand.
"""
import json
import sys

from jsonschema import Draft202012Validator

# schema, texts that nibble generates if they are valid, valid texts that it leaves out
CASES = [
    ({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0},
                                       "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2}},
      "required": ["name", "age"], "additionalProperties": False},
     ['{"name": "a", "age": 1}', '{"name":"a","age":0,"tags":["x","y"]}', '{"name": "a", "age": -1}',
      '{"name": "a"}', '{"name": "a", "age": 1, "tags": ["x", "y", "z"]}', '{"name": "a", "age": 1, "x": 1}',
      '{"name": 1, "age": 1}', '{"name": "a", "age": 1.5}', '{"name": "a", "age": "1"}', '[]', 'null',
      '{\n  "name": "a",\n  "age": 1\n}', '{"name": "a", "age": 1', ''],
     ['{"age": 1, "name": "a"}', ' {"name": "a", "age": 1}', '{"name": "a", "age": 1.0}', '{"name" : "a", "age": 1}']),
    ({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "boolean"}},
     ['{}', '{"a": 1}', '{"a": 1, "b": true}', '{"b": true}', '{"a": true}', '{"b": 1}', '{"a": 1, "aa": false, "\\"": true}'],
     ['{"b": true, "a": 1}']),
    ({"type": "object", "properties": {"x": {"type": "null"}}, "required": ["x"], "minProperties": 2, "maxProperties": 2},
     ['{"x": null, "y": 1}', '{"x": null}', '{"x": null, "y": 1, "z": 2}', '{"y": 1, "z": 2}'], []),
    ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}], "items": {"type": "boolean"},
      "minItems": 1, "maxItems": 3},
     ['["a"]', '["a", 1.5]', '["a", 1, true]', '[]', '["a", "b"]', '["a", 1, 1]', '["a", 1, true, true]'], []),
    ({"type": "array", "items": {"type": "array", "items": {"type": "integer"}, "minItems": 2}, "minItems": 1},
     ['[[1, 2]]', '[[1, 2], [3, 4, 5]]', '[]', '[[1]]', '[1, 2]', '[[]]'], []),
    ({"type": "string", "minLength": 2, "maxLength": 4},
     ['"ab"', '"abcd"', '"a"', '"abcde"', '"\u00e9\u00e9"', '"\U0001f600\U0001f600\U0001f600\U0001f600"', '"\\u00e9\\n"',
      '"\\ud83d\\ude00"', '"\\ud83d\\ude00a"', 'ab', '""'], []),
    ({"type": "string", "pattern": "^[a-z]{2}-[0-9]+$"},
     ['"ab-1"', '"ab-123"', '"AB-1"', '"ab-"', '"xab-1"', '"ab-1x"'], ['"a\\u0062-1"']),
    ({"type": "string", "pattern": "b+|^c$"}, ['"abc"', '"c"', '"ac"', '"cb"', '""', '"\\"b"', '"\\nb"'], []),
    ({"type": "string", "pattern": "^(a|bc)*$", "maxLength": 3}, ['""', '"abc"', '"bca"', '"aaaa"', '"ab"', '"bcbc"'], []),
    ({"type": "integer", "minimum": -12, "maximum": 105},
     [str(i) for i in (-100, -13, -12, -11, -10, -9, -1, 0, 1, 9, 10, 99, 100, 101, 104, 105, 106, 110, 1000)], []),
    ({"type": "integer", "exclusiveMinimum": 0}, ['0', '1', '-1', '42'], []),
    ({"type": "number", "minimum": 0, "exclusiveMaximum": 1}, ['0', '0.0', '0.5', '0.999', '1', '1.0', '-0.1', '10'], ['5e-1']),
    ({"type": "number"}, ['0', '-1.5', '1e5', '1E-5', '1.25e+10', '"1"', 'true'], ['1e300']),
    ({"enum": ["red", "green", 1, None, [1, {"a": 2}]]}, ['"red"', '1', 'null', '[1,{"a":2}]', '"blue"', '2', '[1]'], ['[1, {"a": 2}]']),
    ({"type": "string", "enum": ["x", 2]}, ['"x"', '2', '"y"'], []),
    ({"const": {"k": "v"}}, ['{"k":"v"}', '{"k":"w"}', '{}'], ['{"k": "v"}']),
    ({"type": ["string", "null"], "maxLength": 1}, ['null', '"a"', '"ab"', '1'], []),
    ({"anyOf": [{"type": "integer", "maximum": 5}, {"type": "string", "pattern": "^x"}, {"type": "null"}]},
     ['5', '6', '"xy"', '"y"', 'null', '[]'], []),
    ({"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}, "required": ["kind", "n"]},
                {"type": "object", "properties": {"kind": {"const": "b"}, "s": {"type": "string"}}, "required": ["kind", "s"]}]},
     ['{"kind": "a", "n": 1}', '{"kind": "b", "s": ""}', '{"kind": "a", "s": ""}', '{"kind": "b", "n": 1}', '{"kind": "c"}',
      '{"kind": "a", "n": 1, "s": 5}'], []),
    ({"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"},
                                                           "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
                         "required": ["v"], "additionalProperties": False}}, "$ref": "#/$defs/node"},
     ['{"v": 1}', '{"v": 1, "children": [{"v": 2, "children": []}]}', '{"v": 1, "children": [{}]}', '{"children": []}',
      '{"v": 1, "children": [{"v": "x"}]}'], []),
    ({"allOf": [{"$ref": "#/definitions/t"}], "definitions": {"t": {"type": "boolean"}}}, ['true', 'false', 'null', '1'], []),
    ({"type": "object"}, ['{}', '{"a": [1, {"b": null}]}', '[]', '{"a"}', '{"a": 1,}', '"a"'], []),
    ({}, ['1', '"a"', '[1, [2]]', '{"a": {}}', 'true', 'nul', '[1 2]'], []),
    ({"type": "array", "maxItems": 0}, ['[]', '[1]'], []),
    ({"type": "array", "items": False}, ['[]', '[1]'], []),
]


def is_valid(schema, text):
    try:
        return Draft202012Validator(schema).is_valid(json.loads(text))
    except json.JSONDecodeError:
        return False


def main(out):
    cases = []
    for schema, texts, left_out in CASES:
        Draft202012Validator.check_schema(schema)
        verdicts = [{"text": t, "valid": is_valid(schema, t), "generated": is_valid(schema, t)} for t in texts]
        for text in left_out:
            assert is_valid(schema, text), (schema, text)
            verdicts.append({"text": text, "valid": True, "generated": False})
        cases.append({"schema": schema, "texts": verdicts})
    with open(out, "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
