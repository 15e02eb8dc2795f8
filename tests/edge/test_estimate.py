"""How many tokens a request has, about: texts within 25 % of real tokenizers, and what each kind of part costs."""

from __future__ import annotations

import base64
import json
import random
import string
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iop.document import Document
from iop.edge.pool import estimate as module
from iop.edge.pool.estimate import AUDIO, FILE, IMAGE, MEMBER, MESSAGE, REPLY, estimate, text_tokens

ENGLISH = """The ferry was late again this morning, so we sat on the wet benches by the harbour and shared what was
left of the bread. My sister had read somewhere that the old lighthouse would be sold before winter, and
she wanted to see it once more. "You can hardly call it a light," I told her, "nobody has climbed those
stairs for ten years." She only laughed and asked the man at the ticket window whether the path along
the cliffs was open. It was, he said, but the last part is steep, and after rain you should keep away
from the edge. Could you summarise this in two sentences?""".replace("\n", " ")

KOREAN = """오늘 아침에는 비가 와서 평소보다 조금 늦게 집을 나섰다. 버스 정류장에는 이미 많은 사람들이 우산을 쓰고
서 있었고, 아이들은 물웅덩이를 피해 뛰어다녔다. 회사에 도착하니 동료가 따뜻한 커피를 건네주며 어제
회의에서 결정한 일정을 다시 설명해 주었다. 우리는 다음 주 금요일까지 보고서를 마무리해야 하고, 그전에
고객에게 초안을 보내 의견을 들어야 한다. 점심에는 근처 식당에서 김치찌개를 먹으며 주말 여행 계획을
이야기했다. 이 글을 두 문장으로 요약해 주세요.""".replace("\n", " ")

CHINESE = """今天早上下雨了，所以我比平时晚了一点出门。公交车站已经站满了打着伞的人，孩子们绕着水坑跑来跑去。到了公司，
同事递给我一杯热咖啡，又向我解释了昨天会议上决定的日程安排。我们必须在下周五之前完成报告，在那之前还要把
初稿发给客户，听取他们的意见。中午我们在附近的餐馆吃面，一边吃一边讨论周末旅行的计划。山上的旧灯塔据说要
在冬天之前卖掉，大家都想再去看一次。请把这段文字总结成两句话。""".replace("\n", "")

JAPANESE = """今朝は雨が降っていたので、いつもより少し遅く家を出ました。バス停にはもう傘をさした人がたくさん並んでいて、
子どもたちは水たまりをよけながら走り回っていました。会社に着くと、同僚が温かいコーヒーを渡してくれて、昨
日の会議で決まった予定をもう一度説明してくれました。来週の金曜日までに報告書を仕上げ、その前にお客様に下
書きを送って意見を聞かなければなりません。""".replace("\n", "")

RUSSIAN = """Сегодня утром шёл дождь, поэтому я вышел из дома немного позже обычного. На остановке уже стояло много
людей под зонтами, а дети бегали вокруг луж. Когда я пришёл на работу, коллега дал мне горячий кофе и
ещё раз объяснил план, о котором мы договорились вчера на встрече. До следующей пятницы нужно закончить
отчёт и отправить черновик клиенту.""".replace("\n", " ")

PYTHON = '''def settle(accounts: dict[str, Account], transfers: Iterable[Transfer]) -> list[Refusal]:
    """Carry out transfers in their order; what an account cannot pay is refused."""
    refused = []
    for transfer in sorted(transfers, key=lambda each: (each.day, each.number)):
        source = accounts.get(transfer.source)
        if source is None or source.balance - transfer.amount < -source.limit:
            refused.append(Refusal(transfer.number, reason="not covered" if source else "unknown"))
            continue
        source.balance -= transfer.amount
        accounts[transfer.target].balance += transfer.amount
        logger.info("transfer %d: %s -> %s", transfer.number, transfer.source, transfer.target)
    return refused
'''

C = """static int ring_push(struct ring *r, const uint8_t *data, size_t len)
{
    size_t room = r->size - (r->head - r->tail);

    if (data == NULL || len > room) {
        r->stats.dropped++;
        return -ENOSPC;
    }
    for (size_t i = 0; i < len; i++)
        r->buf[(r->head + i) & (r->size - 1)] = data[i];
    atomic_store_explicit(&r->head, r->head + len, memory_order_release);
    if (r->waiters > 0)
        pthread_cond_signal(&r->not_empty);
    return (int)len;
}
"""

JAVASCRIPT = """export async function loadPages(client, { from = 1, limit = 20, signal } = {}) {
  const pages = [];
  for (let page = from; page < from + limit; page += 1) {
    const response = await client.get(`/articles?page=${page}`, { signal });
    if (!response.ok) {
      throw new Error(`page ${page} failed: ${response.status}`);
    }
    const { items, total } = await response.json();
    pages.push(...items.map((item) => ({ ...item, title: item.title.trim() })));
    if (pages.length >= total) break;
  }
  return pages.filter((item) => item.published !== false);
}
"""

JSON = """{
  "order": {
    "id": "A-20417",
    "customer": {"name": "Marta Lind", "city": "Uppsala", "newsletter": false},
    "lines": [
      {"article": "desk lamp", "quantity": 2, "price": 39.5, "colour": "green"},
      {"article": "bookshelf", "quantity": 1, "price": 120.0, "colour": null},
      {"article": "office chair", "quantity": 4, "price": 89.9, "colour": "black"}
    ],
    "shipping": {"method": "express", "address": "Kungsgatan 12", "insured": true},
    "notes": "Please ring the bell twice; the dog is friendly."
  }
}
"""

COMPACT = """{"name":"find_trains","arguments":{"from":"Lyon","to":"Milano","date":"2024-05-17","passengers":3,
"class":"second","options":{"direct_only":false,"max_price":140.5,"with_bicycle":true,"seats":["window",
"aisle"]},"comment":"arrive before noon, please"},"status":"ok","results":[{"train":"EC 151","leaves":"06:42",
"arrives":"11:35","changes":1,"price":96.0}]}""".replace("\n", "")

REAL = {
    # text: tokens by o200k, Qwen 2.5, Llama 3
    ENGLISH: (128, 129, 129),
    KOREAN: (151, 172, 155),
    CHINESE: (149, 118, 158),
    JAPANESE: (140, 118, 126),
    RUSSIAN: (89, 112, 104),
    PYTHON: (155, 156, 156),
    C: (156, 156, 156),
    JAVASCRIPT: (149, 149, 148),
    JSON: (175, 185, 177),
    COMPACT: (114, 125, 112),
}
"""Counted without a chat template; ``docs/token-estimate.md`` names the vocabularies."""

PNG = "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 4000).decode()
RAW = PNG.partition(",")[2]

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "content", "image_url", "file", "source", "role", "name"])
            | st.text(max_size=3),
            inner | st.sampled_from(["text", "image", "input_audio", "file"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)
MEMBERS = st.sampled_from(
    ["messages", "prompt", "input", "system", "instructions", "tools", "functions", "response_format", "model"]
)


def of(**members: Any) -> int:
    """Estimate a request by way of its JSON text."""
    return estimate(Document.parse(json.dumps(members).encode("utf-8", "surrogatepass")))


def said(content: Any, **more: Any) -> int:
    """Return what one message adds to a request without any."""
    return of(messages=[{"role": "user", "content": content, **more}]) - REPLY - MESSAGE


@pytest.mark.parametrize(("text", "real"), REAL.items(), ids=lambda value: repr(value)[1:20])
def test_texts_are_within_a_quarter_of_every_tokenizer(text: str, real: tuple[int, ...]) -> None:
    guess = text_tokens(text)
    for tokens in real:
        assert 0.75 * tokens <= guess <= 1.25 * tokens, f"{guess} for {tokens}"


@pytest.mark.parametrize("text", REAL, ids=lambda value: repr(value)[1:20])
def test_a_longer_text_of_the_same_kind_costs_in_proportion(text: str) -> None:
    assert text_tokens(text * 500) == pytest.approx(500 * text_tokens(text), rel=0.01)


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("", 0, 0),
        ("a", 1, 1),
        ("Hello!", 1, 3),
        ("안녕하세요", 2, 5),
        ("你好，世界", 2, 5),
        ("สวัสดีชาวโลก", 4, 12),
        ("नमस्ते दुनिया", 4, 14),
        ("مرحبا بالعالم", 3, 8),
        ("Γειά σου Κόσμε", 5, 14),
        ("שלום עולם", 3, 8),
        ("Příliš žluťoučký kůň", 8, 18),
        ("🎉🎉🎉", 3, 9),
        ("1234567890", 4, 10),
        ("\ud800", 1, 3),
        ("\0\x01\x7f", 1, 3),
        (" " * 400, 1, 20),
        ("x = 1\n" + " " * 80 + "y = 2\n", 8, 16),
    ],
)
def test_every_script_is_counted(text: str, least: int, most: int) -> None:
    assert least <= text_tokens(text) <= most


def test_each_byte_has_its_weight() -> None:
    """The sum by Adler-32 is a sum, whatever the length; and no stretch can reach the modulus."""
    draw = random.Random(1)
    letters = string.printable.replace(" ", "") + "éжשع가中あ—🎉"
    for length in [0, 1, 2, 255, 511, 512, 513, 1023, 1024, 1025, 5000]:
        weights = "".join(draw.choices(letters, k=length)).encode().translate(module._WEIGHTS)
        assert module._sum(weights) == sum(weights)
    for heavy in range(0x80):
        assert module._WEIGHTS[heavy] * module._STRETCH + max(module._WEIGHTS) < 65_521
    for first, bytes_ in [(0xC2, 2), (0xE0, 3), (0xF0, 4)]:
        heaviest = max(module._WEIGHTS[first : first + 16])
        assert heaviest * (module._STRETCH // bytes_ + 1) < 65_521
    assert not any(module._WEIGHTS[0x80:0xC0]), "of a character beyond ASCII only the first byte weighs"
    for newline in ("\n" * 100_000, "é" * 100_000, "🎉" * 100_000):
        assert module._sum(newline.encode().translate(module._WEIGHTS)) > 10_000_000


@given(st.text(), st.text())
def test_parts_of_a_text_add_up(one: str, other: str) -> None:
    whole, parts = text_tokens(one + other), text_tokens(one) + text_tokens(other)
    assert whole >= 0
    assert abs(whole - parts) <= 2, "rounding, and two spaces that meet"


@given(st.text(), st.text(min_size=1))
def test_more_text_is_not_fewer_tokens(one: str, other: str) -> None:
    assert text_tokens(one + other) >= text_tokens(one) - 1, "spaces that meet may save one"


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        ({"type": "text", "text": ENGLISH}, text_tokens(ENGLISH)),
        ({"type": "input_text", "text": ENGLISH}, text_tokens(ENGLISH)),
        ({"type": "refusal", "refusal": ENGLISH}, text_tokens(ENGLISH)),
        ({"type": "new_kind", "words": ENGLISH}, text_tokens(ENGLISH)),
        ({"text": ENGLISH}, text_tokens(ENGLISH)),
        (ENGLISH, text_tokens(ENGLISH)),
        ({"type": "text", "text": ENGLISH, "cache_control": {"type": "ephemeral"}}, text_tokens(ENGLISH)),
        ({"type": "image_url", "image_url": {"url": PNG}}, IMAGE),
        ({"type": "image_url", "image_url": {"url": "http://images.example/1.png", "detail": "low"}}, IMAGE),
        ({"type": "image_url", "image_url": PNG}, IMAGE),
        ({"image_url": {"url": PNG}}, IMAGE),
        ({"type": "input_image", "image_url": PNG}, IMAGE),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": RAW}}, IMAGE),
        ({"type": "input_audio", "input_audio": {"data": RAW, "format": "wav"}}, AUDIO),
        ({"type": "audio_url", "audio_url": {"url": PNG}}, AUDIO),
        ({"type": "file", "file": {"file_data": PNG, "filename": "a.pdf"}}, FILE),
        ({"type": "file", "file": {"file_id": "f-1"}}, FILE),
        ({"type": "input_file", "file_data": PNG}, FILE),
        ({"type": "video_url", "video_url": {"url": PNG}}, FILE),
        ({"type": "thinking", "thinking": ENGLISH, "signature": RAW}, text_tokens(ENGLISH)),
        (
            {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": ENGLISH}]},
            text_tokens(ENGLISH),
        ),
        ({"type": "tool_result", "content": [{"type": "image", "source": {"data": RAW}}]}, IMAGE),
        ({"type": "document", "source": {"type": "base64", "data": RAW}}, FILE),
        ({"type": "document", "source": {"type": "text", "data": ENGLISH}}, text_tokens(ENGLISH)),
        ({"type": "new_kind", "payload": {"bytes": RAW}}, FILE + MEMBER + text_tokens("bytes")),
        ({"type": "text", "text": None}, 0),
        ({"type": ["text"], "text": "a"}, 1),
        ({}, 0),
        (None, 0),
        (True, 0),
        (1.5, 0),
        ([], 0),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_a_part(part: Any, tokens: int) -> None:
    assert said([part]) == tokens
    assert said([part, part]) == pytest.approx(2 * tokens, abs=1)
    assert of(system=[part]) == MESSAGE + tokens


def test_texts_are_texts_even_if_they_look_like_bytes() -> None:
    """A model reads what stands in a text."""
    assert said(RAW) == said([{"type": "text", "text": RAW}]) == text_tokens(RAW) > 100_000
    long = "a_name_" * 70
    assert said([{"type": "new_kind", "name": long}]) == text_tokens(long), "not long enough for bytes"
    assert said([{"type": "new_kind", "name": ENGLISH * 9}]) == pytest.approx(text_tokens(ENGLISH * 9), abs=1)


def test_what_stands_around_messages() -> None:
    assert of(messages=[]) == REPLY
    assert of(messages=[{"role": "user", "content": ""}]) == REPLY + MESSAGE
    assert of(messages=[{"role": "user", "content": "a"}] * 10) == REPLY + 10 * MESSAGE + text_tokens("a" * 10)
    assert said("a" * 100, name="b" * 100) == text_tokens("a" * 100 + "b" * 100)
    assert said("a", audio=None, refusal=None) == 1, "as answers are sent back"
    assert said(None, audio={"id": "audio_1"}) == AUDIO
    assert said("a", reasoning_content=ENGLISH) == pytest.approx(text_tokens(ENGLISH), abs=1)


def test_tool_calls_of_the_history() -> None:
    arguments = json.dumps({"city": "Reykjavik", "unit": "celsius", "days": 3})
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    one = said(None, tool_calls=[call])
    assert text_tokens(arguments + "get_weather") < one < text_tokens(json.dumps(call)) + 10
    assert said(None, tool_calls=[call] * 3) == pytest.approx(3 * one, rel=0.05)
    assert said(None, function_call={"name": "f", "arguments": arguments}) > text_tokens(arguments)
    answer = {"role": "tool", "tool_call_id": "call_1", "content": ENGLISH}
    assert of(messages=[answer]) == REPLY + MESSAGE + text_tokens(ENGLISH)


def test_schemas_cost_about_what_their_json_does() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The name of the city, in English."},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            "days": {"type": "integer", "minimum": 1, "maximum": 14, "description": "How many days to look ahead."},
        },
        "required": ["city"],
    }
    function = {
        "name": "get_weather",
        "description": "Return the weather forecast of a city.",
        "parameters": parameters,
    }
    tool = {"type": "function", "function": function}
    one = of(tools=[tool])
    assert one == pytest.approx(text_tokens(json.dumps(tool)), rel=0.3)
    assert of(tools=[tool] * 20) == pytest.approx(20 * one, rel=0.02)
    assert of(functions=[function]) == pytest.approx(one, rel=0.15)
    assert of(response_format={"type": "json_schema", "json_schema": {"schema": parameters}}) > one / 2
    assert of(response_format={"type": "text"}) < 6
    both = of(messages=[{"role": "user", "content": ENGLISH}], tools=[tool])
    assert both == pytest.approx(one + text_tokens(ENGLISH) + MESSAGE + REPLY, abs=1)


@pytest.mark.parametrize("member", ["prompt", "input"])
def test_prompts_and_inputs(member: str) -> None:
    tokens = text_tokens(ENGLISH)
    assert of(**{member: ENGLISH}) == tokens
    assert of(**{member: [ENGLISH, ENGLISH]}) == pytest.approx(2 * tokens, abs=1)
    assert of(**{member: [1, 2, 100_000]}) == 3
    assert of(**{member: [[1, 2], [3, 4, 5]]}) == 5
    assert of(**{member: [{"role": "user", "content": ENGLISH}]}) == MESSAGE + tokens
    assert of(**{member: []}) == 0


def test_items_of_a_response_and_what_stands_before() -> None:
    tokens = text_tokens(ENGLISH)
    assert of(input=[{"role": "user", "content": [{"type": "input_text", "text": ENGLISH}]}]) == MESSAGE + tokens
    assert of(input=[{"type": "function_call_output", "call_id": "c", "output": ENGLISH}]) == MESSAGE + tokens
    assert of(input=[{"type": "image_generation_call", "id": "i", "result": RAW}]) == MESSAGE + FILE
    assert of(instructions=ENGLISH) == of(system=ENGLISH) == MESSAGE + tokens
    assert of(model="m", temperature=1, user="someone", metadata={"a": ENGLISH}) == 0, "a model does not see these"


@settings(max_examples=60)
@given(st.dictionaries(MEMBERS, VALUES))
def test_garbage_is_counted(members: dict[str, Any]) -> None:
    assert of(**members) >= 0


@settings(max_examples=60)
@given(VALUES, VALUES)
def test_messages_add_up(one: Any, other: Any) -> None:
    parts = of(messages=[one]) + of(messages=[other]) - REPLY
    assert abs(of(messages=[one, other]) - parts) <= 12, "spaces that meet, and rounding"


@pytest.mark.parametrize("kind", ["lists", "contents", "objects"])
def test_depth_does_not_matter(kind: str) -> None:
    value: Any = "deep"
    for _ in range(100_000):
        value = [value] if kind == "lists" else (("content" if kind == "contents" else "x", value),)
    for member in ("messages", "input", "system", "tools"):
        assert estimate({member: value}) < 500_000


def test_time_grows_with_the_size_alone() -> None:
    def seconds(members: dict[str, Any]) -> float:
        times = []
        for _ in range(3):
            begun = time.perf_counter()
            estimate(members)
            times.append(time.perf_counter() - begun)
        return min(times)

    many = [(("role", "user"), ("content", [(("type", "text"), ("text", "a"))]))]
    assert seconds({"messages": many * 8000}) < 40 * seconds({"messages": many * 1000})
    assert seconds({"prompt": KOREAN * 5000}) < 0.5, "3 MB"
    assert seconds({"messages": [(("content", [(("type", "image"), ("data", PNG))]),)]}) < 0.01
