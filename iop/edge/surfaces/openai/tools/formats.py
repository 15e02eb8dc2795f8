"""The forms in which models write tool calls as text: a table of opening markers and their readers. Pure.

A reader takes a block after its marker and returns its calls (none: the block is text), or raises NotACall. What
proves that a call is whole (brackets, the call's own closing tag) is needed; what only wraps it is optional.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from iop.edge.surfaces.openai.tools.text import NotACall, Reads, Source
from iop.edge.surfaces.openai.tools.values import Call, Tools, python_calls, value_of

Reader = Callable[[Source, Tools], Reads[list[Call]]]

_OBJECT_FOLLOWS: Final = ("{", ";{", "; {", ";\n{", ",{", ", {", ",\n{")
_ATTRIBUTE: Final = re.compile(r'([\w-]+)="([^"]*)"')
_BARE_KEY: Final = re.compile(r"(^|,)\s*([\w.$-]+)\s*:")
_COUNT: Final = re.compile(r":\d+$")


def _closed(read: Reader, *ends: str) -> Reader:
    """A reader that also takes what closes the block."""

    def read_and_close(source: Source, tools: Tools) -> Reads[list[Call]]:
        calls = yield from read(source, tools)
        yield from source.close(*ends)
        return calls

    return read_and_close


# ---- JSON


def _value(source: Source) -> Reads[Any]:
    """One JSON value, in a code fence perhaps."""
    fence = yield from source.next("```json", "```")
    value = value_of((yield from source.balanced()))
    if fence:
        yield from source.next("```")
    return value


def _objects(source: Source, tools: Tools) -> Reads[list[Call]]:
    """``{…}``, ``[{…}]``, or several objects."""
    calls = tools.calls((yield from _value(source)))
    while (yield from source.ahead(*_OBJECT_FOLLOWS)):
        yield from source.next(";", ",")
        calls += tools.calls(value_of((yield from source.balanced())))
    return calls


def _after(word: str) -> Reader:
    """Objects, when the word comes before them."""

    def read(source: Source, tools: Tools) -> Reads[list[Call]]:
        yield from source.need(word)
        return (yield from _objects(source, tools))

    return read


def _list(source: Source, tools: Tools) -> Reads[list[Call]]:
    """Objects in a list, no less: the marker is a word like any other."""
    if not (yield from source.ahead("[")):
        raise NotACall
    return (yield from _objects(source, tools))


def _mistral(source: Source, tools: Tools) -> Reads[list[Call]]:
    """``[{…}]``, or ``f[CALL_ID]id[ARGS]{…}``."""
    if (yield from source.ahead("[", "{")):
        return (yield from _objects(source, tools))
    name = tools.named((yield from source.word()))
    if (yield from source.next("[CALL_ID]")):
        yield from source.word()
    yield from source.next("[ARGS]")
    return [tools.call(name, (yield from _value(source)))]


def _deepseek(source: Source, tools: Tools) -> Reads[list[Call]]:
    """V3 says ``function``, then the name and fenced JSON; V3.1 the name and JSON."""
    calls = []
    while (yield from source.next("<｜tool▁call▁begin｜>")):
        name = yield from source.word()
        yield from source.need("<｜tool▁sep｜>")
        if name == "function" and not (yield from source.ahead("{", "```")):
            name = yield from source.word()
        calls.append(tools.call(name, (yield from _value(source))))
        yield from source.close("<｜tool▁call▁end｜>")
    return calls


def _kimi(source: Source, tools: Tools) -> Reads[list[Call]]:
    """``functions.f:0<|tool_call_argument_begin|>{…}``, several of them."""
    calls = []
    while (yield from source.next("<|tool_call_begin|>")):
        name = tools.named(_COUNT.sub("", (yield from source.word())))
        yield from source.need("<|tool_call_argument_begin|>")
        calls.append(tools.call(name, (yield from _value(source))))
        yield from source.close("<|tool_call_end|>")
    return calls


def _harmony(source: Source, tools: Tools, name: str = "") -> Reads[list[Call]]:
    """``commentary to=functions.f <|constrain|>json<|message|>{…}``."""
    yield from source.need("commentary", "analysis")
    if (yield from source.next("to=")):
        name = yield from source.word()
    name = tools.named(name)
    yield from source.next("<|constrain|>")
    yield from source.next("json")
    yield from source.need("<|message|>")
    return [tools.call(name, (yield from _value(source)))]


def _harmony_turn(source: Source, tools: Tools) -> Reads[list[Call]]:
    """The same with its turn's beginning, where the name may stand too."""
    name = ""
    if (yield from source.next("to=")):
        name = tools.named((yield from source.word()))
    yield from source.need("<|channel|>")
    return (yield from _harmony(source, tools, name))


# ---- arguments as bare text


def _attributes(source: Source, end: str) -> Reads[dict[str, str]]:
    return dict(_ATTRIBUTE.findall((yield from source.until(end))))


def _parameters(source: Source, tools: Tools, name: str, prefix: str = "") -> Reads[Any]:
    """``<parameter=p>v</parameter>``, or ``<parameter name="p">v</parameter>``; or one JSON object instead."""
    if (yield from source.ahead("{", "```")):
        return (yield from _value(source))
    arguments: dict[str, Any] = {}
    ends = (f"</{prefix}parameter>", f"</{prefix}param>")
    while (yield from source.next(f"<{prefix}parameter", f"<{prefix}param")):
        if (yield from source.next("=")):
            key = yield from source.until(">")
            raw = (yield from source.until(*ends)).removeprefix("\n").removesuffix("\n")
            arguments[key] = tools.argument(name, key, raw)
            continue
        told = yield from _attributes(source, ">")
        key = told.get("name", "")
        if (yield from source.next("<![CDATA[")):
            raw = yield from source.until("]]>")
            yield from source.need(*ends)
        else:
            raw = yield from source.until(*ends)
        arguments[key] = raw if told.get("string") == "true" else tools.argument(name, key, raw)
    return arguments


def _invokes(prefix: str) -> Reader:
    """``<invoke name="f">…</invoke>``, several of them."""

    def read(source: Source, tools: Tools) -> Reads[list[Call]]:
        calls = []
        while (yield from source.next(f"<{prefix}invoke")):
            yield from source.need('name="')
            name = tools.named((yield from source.word()))
            yield from source.need('">')
            calls.append(tools.call(name, (yield from _parameters(source, tools, name, prefix))))
            yield from source.need(f"</{prefix}invoke>")
        return calls

    return read


def _dsml(source: Source, tools: Tools) -> Reads[list[Call]]:
    block = yield from source.need("function_calls>", "tool_calls>")
    return (yield from _closed(_invokes("｜DSML｜"), f"</｜DSML｜{block}")(source, tools))


def _step(source: Source, tools: Tools) -> Reads[list[Call]]:
    calls = []
    while (yield from source.next("<｜tool_call_begin｜>")):
        yield from source.need("function")
        yield from source.need("<｜tool_sep｜>")
        calls += yield from _closed(_invokes("steptml:"), "<｜tool_call_end｜>")(source, tools)
    return calls


def _function(source: Source, tools: Tools) -> Reads[list[Call]]:
    """``<function=f>…</function>``, ``<function name="f">…</function>``, ``<function_calls>…</function_calls>``."""
    form = yield from source.need("=", 'name="', "_calls>")
    if form == "_calls>":
        return (yield from _closed(_invokes(""), "</function_calls>")(source, tools))
    name = tools.named((yield from source.word()))
    yield from source.need(">" if form == "=" else '">')
    arguments = yield from _parameters(source, tools, name)
    yield from source.need("</function>")
    return [tools.call(name, arguments)]


def _keys_and_values(source: Source, tools: Tools) -> Reads[list[Call]]:
    """``f<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>``, all tags perhaps with a suffix."""
    name = tools.named((yield from source.word()))
    yield from source.tag("tool_sep")
    arguments = {}
    while (yield from source.tag("arg_key")):
        key = (yield from source.until("</arg_key")).strip()
        yield from source.rest_of_tag()
        yield from source.need("<arg_value")
        yield from source.rest_of_tag()
        raw = yield from source.until("</arg_value")
        yield from source.rest_of_tag()
        arguments[key] = tools.argument(name, key, raw)
    yield from source.need("</tool_call")
    yield from source.rest_of_tag()
    return [tools.call(name, arguments)]


def _in_tool_call(source: Source, tools: Tools) -> Reads[list[Call]]:
    """JSON, functions, or keys and values; and the closing tag."""
    if (yield from source.ahead("{", "[", "```")):
        return (yield from _closed(_objects, "</tool_call>")(source, tools))
    if not (yield from source.ahead("<function=")):
        return (yield from _keys_and_values(source, tools))
    calls = []
    while (yield from source.next("<function")):
        calls += yield from _function(source, tools)
    yield from source.close("</tool_call>")
    return calls


def _tool_call(source: Source, tools: Tools) -> Reads[list[Call]]:
    """``<tool_call>`` and what is in it, or ``<tool_calls>`` with JSON or several of those."""
    several = yield from source.next("s")
    yield from source.rest_of_tag()
    if not several:
        return (yield from _in_tool_call(source, tools))
    if (yield from source.ahead("{", "[", "```")):
        calls = yield from _objects(source, tools)
    else:
        calls = []
        while (yield from source.tag("tool_call")):
            calls += yield from _in_tool_call(source, tools)
    yield from source.tag("/tool_calls")
    return calls


def _kimi_tags(source: Source, tools: Tools) -> Reads[list[Call]]:
    """``<|open|>call tool="f"<|sep|>``, then arguments that say their own type."""
    calls = []
    while (yield from source.next("<|open|>call ")):
        name = tools.named((yield from _attributes(source, "<|sep|>")).get("tool", ""))
        arguments = {}
        while (yield from source.next("<|open|>argument ")):
            told = yield from _attributes(source, "<|sep|>")
            raw = yield from source.until("<|close|>argument<|sep|>")
            key = told.get("key", "")
            arguments[key] = raw if told.get("type") == "string" else tools.argument(name, key, raw)
        yield from source.need("<|close|>call<|sep|>")
        calls.append(tools.call(name, arguments))
    return calls


# ---- neither


def _gemma(quote: str) -> Reader:
    """``call:f{k:"v",n:1}`` with a marker for a quote and bare keys."""

    def read(source: Source, tools: Tools) -> Reads[list[Call]]:
        yield from source.need("call:")
        name = tools.named((yield from source.word()))
        made, depth = [(yield from source.need("{"))], 1
        while depth:
            part = yield from source.until(quote, "{", "}", "[", "]")
            made.append(_BARE_KEY.sub(r'\1"\2":', part))
            sign = source.taken[-1]
            if sign == quote:
                made.append(json.dumps((yield from source.until(quote))))
            else:
                made.append(sign)
                depth += 1 if sign in "{[" else -1
        return [tools.call(name, "".join(made))]

    return read


def _python(source: Source, tools: Tools) -> Reads[list[Call]]:
    """``[f(a=1), g()]``."""
    if (yield from source.ahead("{", "[{", "[ {", "[\n{")):
        return (yield from _objects(source, tools))
    return [tools.call(*found) for found in python_calls((yield from source.balanced()))]


def whole_text(source: Source, tools: Tools) -> Reads[list[Call]]:
    """Calls without a marker: nothing else may stand in the text, and they must show at once what they are."""
    if (yield from source.next("[TOOL_CALLS]")):
        return (yield from _mistral(source, tools))
    fence = yield from source.next("```json", "```")
    mark = len(source.taken)
    opened = yield from source.need("{", "[")
    if opened == "[":
        opened += yield from source.next("{")
    if opened == "[":
        tools.named((yield from source.word()))
        yield from source.need("(")
        yield from source.balanced("[(")
        calls = [tools.call(*found) for found in python_calls("".join(source.taken[mark:]))]
    else:
        yield from _says_it_calls(source, tools)
        yield from source.balanced(opened)
        calls = tools.calls(value_of("".join(source.taken[mark:])))
    while (yield from source.next(";")):
        calls += tools.calls(value_of((yield from source.balanced())))
    if fence:
        yield from source.next("```")
    yield from source.ending()
    return calls


def _says_it_calls(source: Source, tools: Tools) -> Reads[None]:
    key = yield from source.need('"name"', '"type"', '"function"')
    yield from source.need(":")
    if key == '"type"':
        yield from source.need('"function"')
    elif key == '"name"':
        yield from source.need('"')
        tools.named((yield from source.until('"')))


# ---- the table

READERS: Final[Mapping[str, Reader]] = {
    # Hermes, Qwen, Granite; Qwen3-Coder, MiMo, Step-3.5; GLM; Hunyuan; Jamba
    "<tool_call": _tool_call,
    # MiniCPM; Qwen3-Coder and DeepSeek without their markers; Llama 3. Who forgets the tag before says the one after.
    "<function": _closed(_function, "</tool_call>"),
    "<|python_tag|>": _closed(_objects, "<|eom_id|>", "<|eot_id|>"),  # Llama 3
    "<|python_start|>": _closed(_python, "<|python_end|>"),  # Llama 4
    "<|tool_call_start|>": _closed(_python, "<|tool_call_end|>"),  # LFM2
    "[TOOL_CALLS]": _mistral,
    "<｜tool▁calls▁begin｜>": _closed(_deepseek, "<｜tool▁calls▁end｜>"),  # V3, R1, V3.1
    "<｜DSML｜": _dsml,  # DeepSeek V3.2, V4
    "<|tool_calls_section_begin|>": _closed(_kimi, "<|tool_calls_section_end|>"),  # K2
    "<|open|>tools<|sep|>": _closed(_kimi_tags, "<|close|>tools<|sep|>"),  # K3
    "<minimax:tool_call>": _closed(_invokes(""), "</minimax:tool_call>"),
    "<|tool_call>": _closed(_gemma('<|"|>'), "<tool_call|>"),  # Gemma 4
    "<start_function_call>": _closed(_gemma("<escape>"), "<end_function_call>"),  # functiongemma
    "<|channel|>": _closed(_harmony, "<|call|>"),  # gpt-oss
    "<|start|>assistant": _closed(_harmony_turn, "<|call|>"),
    "<｜tool_calls_begin｜>": _closed(_step, "<｜tool_calls_end｜>"),  # Step-3
    "<|START_ACTION|>": _closed(_objects, "<|END_ACTION|>"),  # Cohere
    "<|action_start|>": _closed(_after("<|plugin|>"), "<|action_end|>"),  # InternLM 2
    "functools": _list,  # Phi-4-mini
}
