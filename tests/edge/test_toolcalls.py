"""Tool calls in a model's text: every form, however it is cut, and text that only looks like one."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iop.edge.surfaces.openai.tools.calls import Call, TextToolCalls
from iop.edge.surfaces.openai.tools.formats import READERS
from iop.edge.surfaces.openai.tools.text import LONGEST_CALL

TIDE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "port": {"type": "string"},
        "note": {"type": ["string", "null"]},
        "count": {"type": "integer"},
        "tags": {"type": "array"},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "level": {"enum": ["1", "2"]},
        "odd": True,
    },
}
TOOLS: dict[str, dict[str, Any]] = {"lookup_tide": TIDE, "read_clock": {}, "Say": {}, "say": {}}

Shown = list[tuple[str, Any] | str]


def readable(shown: list[str | Call]) -> Shown:
    """Texts that stand together as one, and calls with their arguments read."""
    made: Shown = []
    for item in shown:
        if isinstance(item, Call):
            arguments = json.loads(item.arguments)
            assert isinstance(arguments, dict)
            made.append((item.name, arguments))
        else:
            assert item
            made.append(str(made.pop()) + item if made and isinstance(made[-1], str) else item)
    return made


def read(*pieces: str, tools: dict[str, dict[str, Any]] = TOOLS) -> Shown:
    reader = TextToolCalls(tools)
    shown = [item for piece in pieces for item in reader.feed(piece)]
    return readable(shown + reader.end())


def tide(**arguments: Any) -> tuple[str, Any]:
    return ("lookup_tide", arguments)


NOTE = "a } b </tool"
OBJECT = '{"note":"a } b </tool","port":"Oban"}'
CALL = f'{{"name":"lookup_tide","arguments":{OBJECT}}}'
HERMES = f"<tool_call>{CALL}</tool_call>"
OBAN = tide(note=NOTE, port="Oban")
CLOCK = ("read_clock", {})

FORMS: dict[str, tuple[str, Shown]] = {
    "hermes": (f"<tool_call>\n{CALL}\n</tool_call>", [OBAN]),
    "hermes-fenced": (f"<tool_call>\n```json\n{CALL}\n```\n</tool_call>", [OBAN]),
    "hermes-two-in-one": (f"<tool_call>\n{CALL}\n{CALL}\n</tool_call>", [OBAN, OBAN]),
    "hermes-list": (f"<tool_call>[{CALL}, {CALL}]</tool_call>", [OBAN, OBAN]),
    "hermes-brace-too-many": (f"<tool_call>{CALL}}}\n</tool_call>", [OBAN]),
    "qwen-coder": (
        (
            f"<tool_call>\n<function=lookup_tide>\n<parameter=note>\n{NOTE}\n</parameter>\n<parameter=count>\n3\n"
            "</parameter>\n</function>\n</tool_call>"
        ),
        [tide(note=NOTE, count=3)],
    ),
    "qwen-coder-two": (
        "<tool_call><function=read_clock></function><function=read_clock>\n</function></tool_call>",
        [CLOCK, CLOCK],
    ),
    "qwen-coder-no-marker": (
        "<function=lookup_tide><parameter=port>Oban</parameter></function></tool_call>",
        [tide(port="Oban")],
    ),
    "glm": (
        (
            f"<tool_call>lookup_tide\n<arg_key>note</arg_key>\n<arg_value>{NOTE}</arg_value>\n<arg_key>count</arg_key>\n"
            "<arg_value>3</arg_value>\n</tool_call>"
        ),
        [tide(note=NOTE, count=3)],
    ),
    "glm-no-arguments": ("<tool_call>read_clock\n</tool_call>", [CLOCK]),
    "hunyuan-a13b": (f"<tool_calls>[{CALL}]</tool_calls>", [OBAN]),
    "hunyuan-3": (
        (
            "<tool_calls:opensource><tool_call:opensource>lookup_tide<tool_sep:opensource><arg_key:opensource>port"
            "</arg_key:opensource><arg_value:opensource>Oban</arg_value:opensource></tool_call:opensource>"
            "</tool_calls:opensource>"
        ),
        [tide(port="Oban")],
    ),
    "llama": (f'<|python_tag|>{{"name":"lookup_tide","parameters":{OBJECT}}}; {CALL}', [OBAN, OBAN]),
    "llama-function": (f"<function=lookup_tide>{OBJECT}</function>", [OBAN]),
    "llama-4": (
        "<|python_start|>[lookup_tide(note='a } b </tool', tags=[1, 'x)'], odd=true), read_clock()]<|python_end|>",
        [tide(note=NOTE, tags=[1, "x)"], odd=True), CLOCK],
    ),
    "lfm2": ('<|tool_call_start|>[lookup_tide(port="O]ban")]<|tool_call_end|>', [tide(port="O]ban")]),
    "mistral": (f"[TOOL_CALLS] [{CALL},{CALL}]", [OBAN, OBAN]),
    "mistral-name": (f"[TOOL_CALLS]lookup_tide[CALL_ID]a1b2[ARGS]{OBJECT}", [OBAN]),
    "mistral-two": (f"[TOOL_CALLS]lookup_tide[ARGS]{OBJECT}[TOOL_CALLS]read_clock{{}}", [OBAN, CLOCK]),
    "deepseek-v3": (
        (
            f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>lookup_tide\n```json\n{OBJECT}\n```"
            "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>read_clock\n```json\n{}\n```<｜tool▁call▁end｜>"
            "<｜tool▁calls▁end｜>"
        ),
        [OBAN, CLOCK],
    ),
    "deepseek-v3.1": (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>lookup_tide<｜tool▁sep｜>{OBJECT}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [OBAN],
    ),
    "dsml": (
        (
            '<｜DSML｜function_calls>\n<｜DSML｜invoke name="lookup_tide">\n'
            f'<｜DSML｜parameter name="note" string="true">{NOTE}</｜DSML｜parameter>\n'
            '<｜DSML｜parameter name="odd" string="true">1</｜DSML｜parameter>'
            '<｜DSML｜parameter name="count" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
            "</｜DSML｜function_calls>"
        ),
        [tide(note=NOTE, odd="1", count=3)],
    ),
    "dsml-json": (
        f'<｜DSML｜tool_calls><｜DSML｜invoke name="lookup_tide">{OBJECT}</｜DSML｜invoke></｜DSML｜tool_calls>',
        [OBAN],
    ),
    "dsml-stripped": (
        '<function_calls>\n<invoke name="read_clock">\n</invoke>\n</function_calls>',
        [CLOCK],
    ),
    "kimi-k2": (
        (
            f"<|tool_calls_section_begin|><|tool_call_begin|>functions.lookup_tide:0<|tool_call_argument_begin|>{OBJECT}"
            "<|tool_call_end|><|tool_call_begin|>functions.read_clock:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
            "<|tool_calls_section_end|>"
        ),
        [OBAN, CLOCK],
    ),
    "kimi-k3": (
        (
            '<|open|>tools<|sep|><|open|>call tool="lookup_tide" index="1"<|sep|><|open|>argument key="odd" '
            'type="string"<|sep|>7<|close|>argument<|sep|><|open|>argument key="count" type="number"<|sep|>7'
            "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
        ),
        [tide(odd="7", count=7)],
    ),
    "minimax": (
        (
            '<minimax:tool_call>\n<invoke name="lookup_tide">\n<parameter name="port">Oban</parameter>\n</invoke>\n'
            '<invoke name="read_clock"></invoke>\n</minimax:tool_call>'
        ),
        [tide(port="Oban"), CLOCK],
    ),
    "gemma-4": (
        (
            '<|tool_call>call:lookup_tide{note:<|"|>a } b, c:"</tool<|"|>'
            ',count:1,odd:{x:[true,{y:<|"|>z<|"|>}]}}<tool_call|>'
        ),
        [tide(note='a } b, c:"</tool', count=1, odd={"x": [True, {"y": "z"}]})],
    ),
    "functiongemma": (
        "<start_function_call>call:lookup_tide{port:<escape>Oban<escape>}<end_function_call>",
        [tide(port="Oban")],
    ),
    "harmony": (
        f"<|channel|>commentary to=functions.lookup_tide <|constrain|>json<|message|>{OBJECT}<|call|>",
        [OBAN],
    ),
    "harmony-turn": (
        f"<|start|>assistant to=functions.lookup_tide<|channel|>commentary json<|message|>{OBJECT}<|call|>",
        [OBAN],
    ),
    "step-3": (
        (
            '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="lookup_tide">'
            '<steptml:parameter name="port">Oban</steptml:parameter></steptml:invoke>'
            "<｜tool_call_end｜><｜tool_calls_end｜>"
        ),
        [tide(port="Oban")],
    ),
    "cohere": (
        f'<|START_ACTION|>[\n{{"tool_call_id":"0","tool_name":"lookup_tide","parameters":{OBJECT}}}\n]<|END_ACTION|>',
        [OBAN],
    ),
    "internlm": (
        f'<|action_start|><|plugin|>\n{{"name":"lookup_tide","parameters":{OBJECT}}}<|action_end|>',
        [OBAN],
    ),
    "minicpm": (
        (
            '<function name="lookup_tide"><param name="note"><![CDATA[</param> & }]]></param>'
            '<param name="count">3</param></function>'
        ),
        [tide(note="</param> & }", count=3)],
    ),
    "functools": (f"functools[{CALL}]", [OBAN]),
}

BARE: dict[str, tuple[str, Shown]] = {
    "object": (CALL, [OBAN]),
    "fenced": (f"\n```json\n{CALL}\n```\n", [OBAN]),
    "list": (f"[{CALL}]", [OBAN]),
    "llama": (f'{{"name": "lookup_tide", "parameters": {OBJECT}}}; {CALL}', [OBAN, OBAN]),
    "nested": (f'{{"type": "function", "function": {CALL}}}', [OBAN]),
    "python": ('[lookup_tide(port="Oban"), read_clock()]', [tide(port="Oban"), CLOCK]),
    "mistral": (f"[TOOL_CALLS]lookup_tide{OBJECT}", [OBAN]),
    "after-thinking": (f"<think>hm</think>\n{CALL}", ["<think>hm</think>\n", OBAN]),
    "after-thinking-opened-by-the-template": (f"hm</think>\n{CALL}", ["hm</think>\n", OBAN]),
}

TEXTS = {
    "prose": "One < two, [a] {b} `c` functions.",
    "unknown": HERMES.replace("lookup_tide", "rm"),
    "unknown-qwen": "<tool_call><function=rm></function></tool_call>",
    "unknown-among-known": f'<tool_call>{CALL}{{"name":"rm"}}</tool_call>',
    "tag-in-prose": "The <tool_call> tag. It isn't hard; <tool_calls> neither.",
    "never-closed": 'Look: <tool_call>{"name":"lookup_tide","argu',
    "never-closed-value": "<tool_call><function=lookup_tide><parameter=port>O</tool_call>",
    "never-closed-function": "<tool_call><function=lookup_tide><parameter=port>O</parameter>",
    "never-closed-glm": "<tool_call>read_clock",
    "brace-missing": '<tool_call>{"name":"lookup_tide","arguments":{}</tool_call>',
    "wrong-bracket": '<tool_call>{"name":"lookup_tide","arguments":{]}</tool_call>',
    "quote-missing": '<tool_call>{"name":"lookup_tide,"arguments":{}}</tool_call>',
    "no-json": "<tool_call>{lookup_tide}</tool_call>",
    "malformed-arguments": '<tool_call>{"name":"lookup_tide","arguments":"{oops"}</tool_call>',
    "arguments-no-object": '<tool_call>{"name":"lookup_tide","arguments":[1]}</tool_call>',
    "arguments-infinite": '<tool_call>{"name":"lookup_tide","arguments":{"n":1e999}}</tool_call>',
    "arguments-not-where-they-belong": '<tool_call>{"name":"lookup_tide","port":"Oban"}</tool_call>',
    "no-calls": "<tool_calls>[]</tool_calls>",
    "function-no-object": '<tool_call>{"name":5}</tool_call>',
    "list-of-words": '<tool_call>["lookup_tide"]</tool_call>',
    "ambiguous-case": '<tool_call>{"name":"SAY"}</tool_call>',
    "python-code": "<|python_tag|>print(1)",
    "python-position": "<|python_start|>[lookup_tide(1)]<|python_end|>",
    "python-stars": "<|python_start|>[lookup_tide(**{})]<|python_end|>",
    "python-no-call": "<|python_start|>[1]<|python_end|>",
    "python-variable": "<|python_start|>[lookup_tide(port=there)]<|python_end|>",
    "harmony-final": "<|channel|>final<|message|>Hello",
    "harmony-preamble": "<|channel|>commentary<|message|>I will look.",
    "glm-no-value": "<tool_call>lookup_tide<arg_key>a</arg_key></tool_call>",
    "glm-bad-suffix": "<tool_call>lookup_tide<arg_key:x y></tool_call>",
    "functools-word": "functools.lru_cache",
    "internlm-interpreter": "<|action_start|><|interpreter|>\n1",
    "thinking": f"<think>{HERMES}</think>no",
    "thinking-open": f"<think>\n{HERMES}",
    "bare-with-prose-after": f"{CALL} is what I would call",
    "bare-with-prose-before": f"I would call {CALL}",
    "bare-unknown": '{"name": "Bob", "age": 3}',
    "bare-answer": '{"answer": 42}',
    "bare-open": '{"name": "read_clock"',
    "bare-typed": '{"type": "object"}',
    "bare-list": "[1, 2]",
    "bare-python-and-more": "[read_clock()] and more",
    "link": "[TOOL](x)",
    "fence": "```python\nprint(1)\n```",
    "blank": " \n",
    "long-blank": " " * 300,
    "empty": "",
    "partial-marker": "a <tool_ca",
    "escape-at-the-end": '<tool_call>{"a\\',
}

ALL = {**FORMS, **{f"bare-{name}": form for name, form in BARE.items()}}


@pytest.mark.parametrize("name", ALL)
def test_every_form(name: str) -> None:
    """TF-01: the call comes out with its arguments intact, and nothing of its markup does."""
    text, expected = ALL[name]
    assert read(text) == expected
    assert read(*text) == expected


@pytest.mark.parametrize("name", FORMS)
def test_text_around_calls_survives(name: str) -> None:
    """TF-01: text before, between and after the calls is content; blank text between and after them is dropped."""
    text, expected = FORMS[name]
    around = ["One < two. Sure.\n", *expected, "And", *expected, " Done."]
    for cut in (1, 7, 10_000):
        whole = f"One < two. Sure.\n{text}And{text} Done."
        assert read(*[whole[at : at + cut] for at in range(0, len(whole), cut)]) == around
    assert read(f" \n{text}\n\n{text}\n ") == [*expected, *expected]


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_no_call_is_text(name: str) -> None:
    """TF-01: nothing is dropped, and nothing made up."""
    text = TEXTS[name]
    expected = [text] if text else []
    assert read(text) == expected
    assert read(*text) == expected


@pytest.mark.parametrize("name", FORMS)
def test_a_function_that_is_not_offered_is_not_called(name: str) -> None:
    text = FORMS[name][0]
    assert read(text, tools={"other": {}}) == [text]
    assert read(*text, tools={}) == [text]


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_text_until_it_is_whole(name: str) -> None:
    """TF-01, never_closed: what is cut off anywhere is shown as it is, or is the calls that were whole."""
    text, expected = FORMS[name]
    for end in range(len(text)):
        shown = read(text[:end])
        assert shown in ([text[:end]] if end else [], expected) or shown[0] == expected[0]


def test_the_public_case_delta_by_delta() -> None:
    """TF-01: no delta holds a part of the tag, and text waits no longer than the tag is possible."""
    reader = TextToolCalls({"lookup_tide": {"type": "object"}})
    assert reader.feed("One < two. Sure") == ["One < two. Sure"]
    assert reader.feed(".\n<tool") == [".\n"]
    rest = '_call>{"name":"lookup_tide","arguments":{"note":"a } b </tool","port":"Oban"}}</tool'
    assert reader.feed(rest) == []
    assert reader.feed("_call>") == [Call("lookup_tide", '{"note":"a } b </tool","port":"Oban"}')]
    assert reader.end() == []


def test_text_waits_no_longer_than_a_marker_is_possible() -> None:
    """TF-01"""
    reader = TextToolCalls(TOOLS)
    assert reader.feed("a <") == ["a "]
    assert reader.feed(" b") == ["< b"]
    assert reader.feed("<tool_") == []
    assert reader.feed("<tool_") == ["<tool_"]
    assert reader.feed("call> is a tag") == ["<tool_call> is", " a tag"]
    assert reader.feed('<tool_call>{"x" ') == []
    assert reader.feed("y") == ['<tool_call>{"x" ', "y"]
    assert TextToolCalls(TOOLS).feed('{"answer"') == ["{", '"answer"']
    assert TextToolCalls(TOOLS).feed('{"name": "Bob"') == ['{"name": "Bob"']
    assert TextToolCalls(TOOLS).feed(" " * 40) == [" " * 40]


def test_white_space_alone_is_no_content_beside_calls() -> None:
    """TF-01: trailing white space may be trimmed; alone it stays."""
    assert read("\n", HERMES, " ", "\n") == [OBAN]
    assert read("\n", "x ", HERMES, "\n y") == ["\nx ", OBAN, "\n y"]
    assert read("\n", "\n") == ["\n\n"]


@pytest.mark.parametrize(
    "text", ["<tool_call>" + CALL, f"<tool_call>{CALL}\n{HERMES}", f"{HERMES}<tool_call>{CALL}</too"]
)
def test_what_only_wraps_a_call_may_be_missing(text: str) -> None:
    calls = [item for item in read(text) if not isinstance(item, str)]
    assert calls == [OBAN] * text.count("lookup_tide")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('{"name":"lookup_tide"}', tide()),
        ('{"name":"lookup_tide","arguments":""}', tide()),
        ('{"name":"lookup_tide","arguments":null}', tide()),
        ('{"name":"lookup_tide","arguments":"{\\"port\\":\\"Oban\\"}"}', tide(port="Oban")),
        ('{"name":"lookup_tide","parameters":{"port":"Oban"}}', tide(port="Oban")),
        ('{"name":"lookup_tide","args":{"port":"Oban"}}', tide(port="Oban")),
        ('{"name":"lookup_tide","input":{"port":"Oban"}}', tide(port="Oban")),
        ('{"id":"1","type":"function","function":{"name":"lookup_tide","arguments":{}}}', tide()),
        ('{"function":"lookup_tide","arguments":{}}', tide()),
        ('{"name":"functions.Lookup_Tide"}', tide()),
        ('{"name":"Say"}', ("Say", {})),
        ('{"name":"lookup_tide","arguments":{"port":"a,]\\"",},}', tide(port='a,]"')),
        ("{'name': 'lookup_tide', 'arguments': {'port': \"it's\", 'odd': None}}", tide(port="it's", odd=None)),
        ("{'name': 'lookup_tide', 'arguments': {'port': '\\d'}}", tide(port="\\d")),
        ('{"name":"lookup_tide","arguments":{"port":"two\nlines"}}', tide(port="two\nlines")),
        ('{"name":"lookup_tide","arguments":{"port":"那🌍é"}}', tide(port="那🌍é")),
    ],
)
def test_json_is_read_tolerantly(written: str, expected: tuple[str, Any]) -> None:
    """TD-03: absent arguments are ``{}``. UTF-01: characters of several bytes stay what they are."""
    assert read(f"<tool_call>{written}</tool_call>") == [expected]


@pytest.mark.parametrize(
    ("key", "raw", "expected"),
    [
        ("port", "3", "3"),
        ("port", "null", "null"),
        ("port", " {} ", " {} "),
        ("port", "\n\nlines\n", "\nlines"),
        ("note", "null", None),
        ("note", "5", "5"),
        ("count", "3", 3),
        ("count", "three", "three"),
        ("tags", '[1, "a"]', [1, "a"]),
        ("tags", "[1, 'a',]", [1, "a"]),
        ("tags", "1, 2", "1, 2"),
        ("either", "3", "3"),
        ("level", "1", "1"),
        ("odd", "True", True),
        ("odd", "NaN", "NaN"),
        ("unheard", "3", 3),
        ("unheard", "<b>", "<b>"),
    ],
)
def test_bare_values_are_what_the_schema_says(key: str, raw: str, expected: Any) -> None:
    text = f"<tool_call><function=lookup_tide><parameter={key}>{raw}</parameter></function></tool_call>"
    assert read(text) == [tide(**{key: expected})]


def test_markers_in_strings_and_values_are_no_markers() -> None:
    """TF-01: "}" or a tag in a string ends nothing, and what a call carries is not itself called."""
    inner = "<tool_call>read_clock</tool_call></function>"
    assert read(f'<tool_call>{{"name":"lookup_tide","arguments":{{"note":"{inner}"}}}}</tool_call>') == [
        tide(note=inner)
    ]
    text = f"<tool_call><function=lookup_tide><parameter=note>{inner}</parameter></function></tool_call>"
    assert read(text) == [tide(note=inner)]
    assert read(f'<tool_call>{{"name":"rm","arguments":{{"note":"{inner}"}}}}</tool_call>')[1:] == []


def test_a_block_without_end_is_text_again() -> None:
    """TF-01: it holds the text back only so long, whatever the cuts."""
    text = '<tool_call>{"name": "' + "x" * LONGEST_CALL
    whole = text + HERMES
    reader = TextToolCalls(TOOLS)
    assert reader.feed(text[: LONGEST_CALL - 1]) == []
    assert "".join(map(str, reader.feed(text[LONGEST_CALL - 1 :]))) == text
    for cut in (1000, len(whole)):
        assert read(*[whole[at : at + cut] for at in range(0, len(whole), cut)]) == [text, OBAN]


def test_the_deepest_nesting_is_text() -> None:
    text = '<tool_call>{"name":"say","arguments":{"a":' + "[" * 90_000 + "]" * 90_000 + "}}</tool_call>"
    assert read(text) == [text]


@pytest.mark.parametrize(
    "text",
    [
        "word " * 40_000,
        "< [ f " * 33_000,
        '<tool_call>{"name":"lookup_tide","arguments":{"note":"' + "a } b\\n " * 25_000 + '"}}</tool_call>',
        "<tool_call><function=lookup_tide><parameter=note>" + "a </p " * 33_000 + "</parameter></function>",
        '<tool_call>{"' * 15_000,
        "</think> " * 22_000,
        "<tool_call>" + " " * 200_000,
        "<tool_call>{'a': \"" + '\\"' * 100_000,
    ],
    ids=["prose", "beginnings", "json", "value", "openers", "thoughts", "spaces", "quotes"],
)
def test_time_grows_with_the_text(text: str) -> None:
    """200 KB, whole and in pieces of three characters; a reader that looks back would take minutes."""
    for cut in (3, len(text)):
        pieces = [text[at : at + cut] for at in range(0, len(text), cut)]
        reader, started = TextToolCalls(TOOLS), time.process_time()
        for piece in pieces:
            reader.feed(piece)
        reader.end()
        assert time.process_time() - started < 2


def test_no_marker_hides_in_another() -> None:
    """Else which one is found would depend on the cuts."""
    words = [*READERS, "<think>", "</think>"]
    assert [(a, b) for a in words for b in words if a != b and a in b] == []


PARTS = st.sampled_from(
    [
        *[text for text, _ in FORMS.values()],
        *TEXTS.values(),
        *READERS,
        CALL,
        "</tool_call>",
        "<think>",
        "</think>",
        "{",
        "}",
        '"',
        "\\",
        "\n",
        " word ",
    ]
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.one_of(PARTS, st.text(max_size=5)), max_size=5), st.data())
def test_cuts_change_nothing(parts: list[str], data: st.DataObject) -> None:
    """TF-01: every form, whole or broken, in any split."""
    cut_parts = [part[: data.draw(st.integers(0, len(part)))] if data.draw(st.booleans()) else part for part in parts]
    text = "".join(cut_parts)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=12)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = read(text)
    assert read(*pieces) == whole
    assert read(*text) == whole


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(PARTS, st.text(max_size=5)), max_size=5))
def test_without_an_offered_function_all_is_text(parts: list[str]) -> None:
    """TF-01: nothing is dropped."""
    text = "".join(parts)
    assert read(text, tools={}) == ([text] if text else [])
