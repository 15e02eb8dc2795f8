"""Every kind of adapter behind one API: the same answers, the same errors, and no process left of an agent.

``docs/contracts/adapters.md``.
"""

from __future__ import annotations

import base64
import json
import signal
import struct
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest
import tiny_model
from fake_openai import USAGE
from raw_http import Wire, chat
from real_gateway import PORT, Backend, Gateway, agent, provider, user
from running import free_port, until
from tiny_model import SENTENCE

IOP_EDGE = str(Path(sysconfig.get_path("scripts")) / "iop-edge")
GRACE = 0.3
SOON = GRACE + 2.0
"""Seconds in which nothing is left of a run whose client has gone, on a slow machine too."""

WEATHER: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "What the weather is like.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


@pytest.fixture(scope="module")
def backends(work: Path) -> Iterator[dict[str, Backend]]:
    """An Ollama, and llama.cpp without ``--jinja``: with the usual model, and with one that writes a call as text."""
    tiny_model.write(work / "plain.gguf")
    tiny_model.write(work / "writing.gguf", calls_as_text=True)
    made = {"ollama": Backend("ollama", work, "fake_ollama.py", PORT)}
    for name in ("plain", "writing"):
        made[name] = Backend(name, work, "llama_server.py", work / f"{name}.gguf", name, PORT, 8192, "plain")
    yield {name: backend.ready() for name, backend in made.items()}
    for backend in made.values():
        backend.child.stop()


@pytest.fixture(scope="module")
def workspaces(work: Path) -> Path:
    root = work / "workspaces"
    (root / "project").mkdir(parents=True)
    (work / "elsewhere").mkdir()
    (root / "out").symlink_to(work / "elsewhere")
    return root


@pytest.fixture(scope="module")
def adapters(
    work: Path, workspaces: Path, backends: dict[str, Backend], tiny: Backend, fake: Backend
) -> Iterator[Gateway]:
    """One edge and one node with every kind of adapter."""
    folder, ollama = work / "adapters", backends["ollama"]
    agents: dict[str, Any] = {"grace_ms": int(GRACE * 1000), "env": {"FOLDER": str(folder)}}
    made = Gateway(
        folder,
        provider("tiny", tiny, "llama_cpp"),
        provider("olla", ollama, "ollama", context_size=8192),
        provider("untaught", ollama, "ollama", context_size=8192),
        provider("vectors", ollama, "ollama", context_size=64, keep_alive="5m"),
        provider("missing", ollama, "ollama"),
        provider("text", fake, "openai", tools="text"),
        provider("refuses-as-vllm", fake, "vllm", target="vllm"),
        provider("refuses-as-llama", fake, "llama_cpp", target="llama.cpp"),
        provider("plain", backends["plain"], "llama_cpp"),
        provider("writing", backends["writing"], "llama_cpp"),
        provider("stubborn", backends["plain"], "llama_cpp", tools="native"),
        provider("fake", fake, "openai"),
        provider("dead", fake, "openai", base_url=f"http://127.0.0.1:{free_port()}"),
        agent("agent", **agents),
        agent("single", capacity=1, **agents),
        agent("absent", command="no-such-agent"),
        groups={"mixed": ["fake", "olla"], "half-dead": ["dead", "olla"]},
        node_options=["--workspace-root", str(workspaces)],
    )
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def client(adapters: Gateway) -> openai.OpenAI:
    return adapters.client()


# ---- one conversation -----------------------------------------------------------------------------------------------


class Said(NamedTuple):
    """What of an answer must not depend on the way it came."""

    text: str
    calls: tuple[tuple[str, str], ...]
    finish_reason: str
    usage: tuple[int, int, int]

    @classmethod
    def of(cls, answer: Any) -> Said:
        (choice,) = answer.choices
        assert choice.message.role == "assistant"
        calls = choice.message.tool_calls or ()
        assert len({call.id for call in calls}) == len(calls)
        assert all(call.id and call.type == "function" for call in calls)
        usage = answer.usage
        return cls(
            choice.message.content or "",
            tuple((call.function.name, call.function.arguments) for call in calls),
            choice.finish_reason,
            (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens),
        )

    @property
    def kind(self) -> Any:
        """What the same model would say behind any backend."""
        calls = [(name, {key: type(value) for key, value in json.loads(given).items()}) for name, given in self.calls]
        return self.text, calls, self.finish_reason


def ask(client: openai.OpenAI, model: str, messages: list[Any], *, stream: bool) -> Any:
    """Ask as an application does; the SDK's own helper puts a stream together."""
    if not stream:
        return client.chat.completions.create(model=model, messages=messages, tools=WEATHER)
    options: Any = {"include_usage": True}
    with client.chat.completions.stream(
        model=model, messages=messages, tools=WEATHER, stream_options=options
    ) as answer:
        for _ in answer:
            pass
        return answer.get_final_completion()


def talk(client: openai.OpenAI, calling: str, telling: str, *, stream: bool) -> list[Said]:
    """Ask, give the result of the call that comes, and ask again."""
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is it raining?"}]
    first = ask(client, calling, messages, stream=stream)
    message = first.choices[0].message.model_dump(exclude_none=True)
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": '{"rain": false}'} for call in message["tool_calls"]
    ]
    return [Said.of(first), Said.of(ask(client, telling, [*messages, message, *results], stream=stream))]


WAYS = {
    "passthrough": ("tiny", "tiny"),
    "ollama": ("olla", "olla"),
    "ollama, tools as text": ("untaught", "untaught"),
    "openai_compat, tools as text": ("text", "text"),
    "refused as by vLLM": ("refuses-as-vllm", "refuses-as-vllm"),
    "refused as by llama.cpp": ("refuses-as-llama", "refuses-as-llama"),
    "refused by llama.cpp": ("writing", "plain"),
}


@pytest.mark.parametrize("way", WAYS)
def test_one_conversation_in_every_way(client: openai.OpenAI, way: str) -> None:
    """FR-01, TF-01: whatever is behind it, an application sees one API, and a stream says what a document says."""
    whole = talk(client, *WAYS[way], stream=False)
    assert talk(client, *WAYS[way], stream=True) == whole
    assert [each.kind for each in whole] == [
        ("", [("weather", {"city": str})], "tool_calls"),
        (SENTENCE, [], "stop"),
    ]
    for prompt, answer, total in (each.usage for each in whole):
        assert prompt > 0
        assert answer > 0
        assert total == prompt + answer


def test_llama_refuses_tools_in_the_words_that_are_looked_for(client: openai.OpenAI) -> None:
    """Its own refusal, told where the fallback is switched off."""
    for stream in (False, True):
        with pytest.raises(openai.InternalServerError, match="tools param requires --jinja flag") as caught:
            ask(client, "stubborn", user("Is it raining?"), stream=stream)
        assert (caught.value.status_code, caught.value.code) == (502, "upstream_error")


def test_a_model_that_does_not_follow_the_instruction_answers_all_the_same(client: openai.OpenAI) -> None:
    for stream in (False, True):
        said = Said.of(ask(client, "plain", user("Is it raining?"), stream=stream))
        assert said.kind == (SENTENCE, [], "stop")


def test_what_looks_like_a_call_is_text_where_no_tools_were_offered(client: openai.OpenAI) -> None:
    """TF-01: text is never parsed on an unmarked run."""
    answer = client.chat.completions.create(model="writing", messages=user("Is it raining?"))
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].message.content == "".join(tiny_model.WRITTEN).replace("▁", " ")


# ---- one model, two kinds of provider -------------------------------------------------------------------------------


def kinds(document: Any) -> Any:
    """Return the shape of a document: its members and what they are; one that is null is not there."""
    if isinstance(document, dict):
        return {key: kinds(value) for key, value in sorted(document.items()) if value is not None}
    if isinstance(document, list):
        return [kinds(each) for each in document]
    return type(document).__name__


def test_a_group_of_two_kinds(adapters: Gateway, client: openai.OpenAI, fake: Backend, backends: Any) -> None:
    before = [backend.stats["asked"] for backend in (fake, backends["ollama"])]
    shapes = []
    for _ in range(4):
        answer = client.chat.completions.with_raw_response.create(model="mixed", messages=user(SENTENCE))
        document = answer.http_response.json()
        assert document["choices"][0]["message"]["content"] == SENTENCE
        shapes.append(kinds(document))
        assert answer.headers["content-type"] == "application/json"
    assert [shape == shapes[0] for shape in shapes] == [True] * 4
    after = [backend.stats["asked"] for backend in (fake, backends["ollama"])]
    assert [b - a for a, b in zip(before, after, strict=True)] == [2, 2]


@pytest.mark.parametrize("usage", [False, True])
def test_a_group_of_two_kinds_streams(adapters: Gateway, fake: Backend, backends: Any, usage: bool) -> None:
    before = [backend.stats["asked"] for backend in (fake, backends["ollama"])]
    shapes = []
    more: dict[str, Any] = {"stream_options": {"include_usage": True}} if usage else {}
    for _ in range(2):
        with Wire(adapters.port) as wire:
            answer = wire.ask(chat(SENTENCE, model="mixed", stream=True, **more))
        assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
        *events, done = answer.events
        assert done == "[DONE]"
        chunks = [json.loads(event) for event in events]
        assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"]) == SENTENCE
        assert any(c.get("usage") for c in chunks) == usage
        shapes.append({json.dumps(kinds(chunk)) for chunk in chunks})
    assert shapes[0] == shapes[1]
    after = [backend.stats["asked"] for backend in (fake, backends["ollama"])]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("model", "order", "said"),
    [("mixed", "busy", "busy"), ("mixed", "limit 7", SENTENCE), ("half-dead", "Hello", SENTENCE)],
)
def test_one_kind_stands_in_for_the_other(
    client: openai.OpenAI, fake: Backend, backends: Any, model: str, order: str, said: str, stream: bool
) -> None:
    """A 503 of the Ollama, a 429 of the other, one that nobody can connect to: whoever is first, the other answers."""
    first = {"busy": backends["ollama"], "limit 7": fake}.get(order)
    before = first.stats["asked"] if first else 0
    for _ in range(2):
        if stream:
            with client.chat.completions.stream(model=model, messages=user(order)) as events:
                for _event in events:
                    pass
                answer: Any = events.get_final_completion()
        else:
            answer = client.chat.completions.create(model=model, messages=user(order))
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (said, "stop")
        if said == "busy" and not stream:
            assert answer.usage.total_tokens == USAGE["total_tokens"]
    assert first is None or first.stats["asked"] > before


# ---- embeddings of an Ollama ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", [None, "float", "base64"])
def test_embeddings_of_an_ollama(client: openai.OpenAI, backends: Any, format: Any) -> None:
    """EB-01: over the native API, as the SDK asks: base64 unless told."""
    asked = {} if format is None else {"encoding_format": format}
    answer = client.embeddings.with_raw_response.create(model="vectors", input=["red", "yellow"], **asked)
    data = answer.http_response.json()["data"]
    shown = [struct.pack("<3f", n, 0.5, -1.0) for n in (3.0, 6.0)]
    if format == "float":
        assert [each["embedding"] for each in data] == [[3.0, 0.5, -1.0], [6.0, 0.5, -1.0]]
    else:
        assert [base64.b64decode(each["embedding"]) for each in data] == shown
    assert answer.parse().usage.prompt_tokens == 8
    assert answer.parse().data[1].index == 1
    last = backends["ollama"].stats["last"]
    assert (last["options"], last["truncate"], last["keep_alive"]) == ({"num_ctx": 64}, False, "5m")


def test_dimensions_of_an_ollama(client: openai.OpenAI) -> None:
    assert client.embeddings.create(model="vectors", input="red", dimensions=2).data[0].embedding == [3.0, 0.5]


def test_what_an_ollama_does_not_embed(client: openai.OpenAI) -> None:
    """A text that is too long is not cut, token ids are not guessed at, and what only a chat has is no embedding."""
    refusals: list[tuple[str, Any, Any]] = [
        ("vectors", "x" * 65, (400, "context_length_exceeded")),
        ("vectors", [1, 2], (400, "invalid_value")),
        ("missing", "red", (404, "model_not_found")),
        ("agent", "red", (404, "unknown_url")),
    ]
    for model, given, shown in refusals:
        with pytest.raises(openai.APIStatusError) as raised:
            client.with_options(max_retries=0).embeddings.create(model=model, input=given)
        assert (raised.value.status_code, raised.value.code) == shown


def test_prompts_of_an_ollama(client: openai.OpenAI) -> None:
    """CH-02: one text is asked as a chat, anything else is not guessed at."""
    assert client.completions.create(model="olla", prompt="Once").choices[0].text == SENTENCE
    with pytest.raises(openai.BadRequestError) as raised:
        client.completions.create(model="olla", prompt=["a", "b"])
    assert (raised.value.code, raised.value.param) == ("invalid_value", "prompt")


# ---- agents ---------------------------------------------------------------------------------------------------------


def left(gateway: Gateway) -> list[int]:
    """Return the processes of every run, wherever they put themselves, and every child of the node, dead ones too."""
    found = []
    mark = f"FOLDER={gateway.folder}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1])
            if parent == gateway.node.pid or mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue  # it has just ended
    return found


def nothing_left(gateway: Gateway, seconds: float = SOON) -> None:
    until(lambda: not left(gateway), "nothing is left of any run", seconds)
    until(lambda: not any(each["in_flight"] for each in gateway.pool["providers"]), "every slot is free")


def order(client: openai.OpenAI, prompt: str, model: str = "agent", **metadata: str) -> str:
    """Ask an agent; return what it says."""
    answer = client.chat.completions.create(model=model, messages=user(prompt), metadata=metadata)
    assert answer.choices[0].finish_reason == "stop"
    return answer.choices[0].message.content or ""


def test_a_session_goes_on(client: openai.OpenAI) -> None:
    session = {"session_id": "goes-on"}
    assert order(client, "hello", **session) == "hello"
    arguments = json.loads(order(client, "tell arguments", **session))
    assert arguments[0] == "--resume"
    assert arguments[1].startswith("agent-")
    by_header = client.chat.completions.create(
        model="agent", messages=user("tell arguments"), extra_headers={"x-iop-session": "goes-on"}
    )
    assert json.loads(by_header.choices[0].message.content or "") == arguments
    assert json.loads(order(client, "tell arguments", session_id="another")) == []
    assert json.loads(order(client, "tell arguments")) == []


def test_what_a_node_says_of_itself(adapters: Gateway, client: openai.OpenAI) -> None:
    """All five queries, one by one and in the status, by the commands and by the document."""

    def told(*command: str) -> Any:
        options = ["--console", str(adapters.folder / "edge" / "console.sock"), "--format", "json"]
        done = subprocess.run([IOP_EDGE, *command, *options], capture_output=True, text=True, timeout=30, check=True)
        return json.loads(done.stdout)

    order(client, "hello", session_id="known")
    (node,) = told("status")["nodes"]
    for query in ("usage", "capabilities", "sessions", "transport", "providers"):
        alone = told("node", "ask", "node-1", query.upper())
        assert query == "sessions" or alone.keys() == node[query].keys()
        assert not alone["truncated"]
    assert node["usage"]["runs_total"] >= 1
    assert {each["name"] for each in node["capabilities"]["adapters"]} >= {"tiny", "olla", "agent"}
    assert {each["type"] for each in node["capabilities"]["adapters"]} == {"openai_compat", "ollama", "cli"}
    assert node["sessions"]["active"] >= 1
    assert node["transport"]["bytes_in"] > 0
    assert node["transport"]["frames_out"] > 0
    seen = {each["provider_id"]: (each["health"], each["in_flight"]) for each in node["providers"]["providers"]}
    assert seen["agent"] == ("unknown", 0), "these backends are not checked"
    assert len(seen) == 16


def test_an_agents_answer_is_one_like_any(client: openai.OpenAI) -> None:
    """CL-10: streamed and whole it says the same, once."""
    whole = client.chat.completions.create(model="agent", messages=user("hello there"))
    options: Any = {"include_usage": True}
    with client.chat.completions.stream(model="agent", messages=user("hello there"), stream_options=options) as stream:
        for _ in stream:
            pass
        assert Said.of(stream.get_final_completion()) == Said.of(whole)
    assert Said.of(whole) == ("hello there", (), "stop", (9, 3, 12))


@pytest.mark.parametrize("prompt", ["hang", "mute"])
def test_one_run_of_a_session_at_a_time(adapters: Gateway, client: openai.OpenAI, prompt: str) -> None:
    """CL-11: of a session that has said its name, and of one that has not; CL-05: the next run starts."""
    session = {"session_id": f"busy-{prompt}"}
    with Wire(adapters.port) as wire:
        wire.send(chat(prompt, model="agent", stream=True, metadata=session))
        until(lambda: left(adapters), "the agent runs")
        for asked in (lambda: order(client, "hello", **session), lambda: ask_stream(client, "hello", **session)):
            with pytest.raises(openai.ConflictError) as caught:
                asked()
            assert (caught.value.status_code, caught.value.code) == (409, "session_busy")
        assert order(client, "hello", session_id="not-busy") == "hello"
        assert len(left(adapters)) == 1
    nothing_left(adapters)
    assert order(client, "hello", **session) == "hello"


def ask_stream(client: openai.OpenAI, prompt: str, model: str = "agent", **metadata: str) -> str:
    stream = client.chat.completions.create(model=model, messages=user(prompt), metadata=metadata, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def test_a_workspace_under_the_nodes_root(client: openai.OpenAI, workspaces: Path) -> None:
    project = str(workspaces / "project")
    assert json.loads(order(client, "tell cwd", workspace=project)) == project
    assert json.loads(order(client, "tell cwd", workspace=project, session_id="works")) == project
    assert json.loads(order(client, "tell cwd", session_id="works")) == project
    assert json.loads(order(client, "tell cwd")) != project


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("where", ["{root}/none", "{root}/../elsewhere", "{root}/out", "/", "project", "/no/such"])
def test_a_workspace_that_cannot_be_used(
    adapters: Gateway, client: openai.OpenAI, workspaces: Path, where: str, stream: bool
) -> None:
    """CL-08: missing, outside by any spelling, behind a link, relative. The message names what was asked for."""
    workspace = where.format(root=workspaces)
    with pytest.raises(openai.BadRequestError) as caught:
        (ask_stream if stream else order)(client, "tell cwd", workspace=workspace)
    error = caught.value
    assert (error.code, error.param) == ("workspace_invalid", "metadata.workspace")
    assert f"the workspace {workspace} cannot be used" in error.message
    assert not left(adapters)


PHASES = {
    "before a word": ("mute", True, 0, 1),
    "before a word, whole": ("mute", False, 0, 1),
    "in the middle": ("hang", True, 2, 1),
    "in the middle, whole": ("hang", False, 0, 1),
    "deaf with deaf children": ("deaf", True, 2, 3),
    "deaf with deaf children, whole": ("deaf", False, 0, 3),
    "stopped by a client that does not read": ("flood 100000", True, 1, 1),
}
"""The order, whether the answer streams, the events that are read of it, and how many processes there are then."""


@pytest.mark.parametrize("phase", PHASES)
def test_a_client_that_leaves_ends_the_agent(adapters: Gateway, client: openai.OpenAI, phase: str) -> None:
    """CL-05: and its children, which ignore SIGINT and hold stdout, one of them in a session of its own."""
    prompt, stream, events, processes = PHASES[phase]
    with Wire(adapters.port, buffer=4096) as wire:
        wire.send(chat(prompt, model="agent", stream=stream, metadata={"session_id": phase}))
        if events:
            wire.begin(events)
        until(lambda: len(left(adapters)) == processes, f"there are {processes} processes")
        wire.reset()
    nothing_left(adapters)
    assert order(client, "hello", session_id=phase) == "hello"


def test_a_client_that_leaves_the_queue_starts_no_agent(adapters: Gateway, client: openai.OpenAI) -> None:
    with Wire(adapters.port) as served, Wire(adapters.port) as waits:
        served.send(chat("hang", model="single", stream=True))
        served.begin(2)
        waits.send(chat("hang", model="single"))
        until(lambda: adapters.pool["queued"], "the second run waits")
        waits.reset()
        until(lambda: not adapters.pool["queued"], "nobody waits")
        assert len(left(adapters)) == 1
        served.reset()
    nothing_left(adapters)
    assert order(client, "hello", "single") == "hello"


@pytest.mark.slow
def test_a_node_that_ends_leaves_no_agent(make_gateway: Callable[..., Gateway], tmp_path: Path) -> None:
    """CL-05: killed, its successor finds what it left, and the sessions go on; asked to end, it ends them itself."""
    folder = tmp_path / "gateway-0"
    made = agent("agent", grace_ms=int(GRACE * 1000), env={"FOLDER": str(folder)})
    gateway = make_gateway(made).start()
    names = [f"session-{number}" for number in range(10)]
    prompts = {name: "deaf" if number % 2 else "hang" for number, name in enumerate(names)}

    def begin(stack: ExitStack) -> list[Wire]:
        wires = [stack.enter_context(Wire(gateway.port)) for _ in names]
        for wire, name in zip(wires, names, strict=True):
            wire.send(chat(prompts[name], model="agent", stream=True, metadata={"session_id": name}))
        for wire in wires:
            wire.begin(2)
        assert len(left(gateway)) == 20
        return wires

    def resumed() -> list[list[str]]:
        with gateway.client() as client, ThreadPoolExecutor(4) as threads:
            asked = [threads.submit(order, client, "tell arguments", session_id=name) for name in names]
            return [json.loads(each.result()) for each in asked]

    with ExitStack() as stack:
        wires = begin(stack)
        gateway.node.kill()
        for wire in wires:
            assert json.loads(wire.rest().events[-1])["error"]["code"] == "node_lost"
    assert len(left(gateway)) == 20  # nobody is there to end them
    gateway.start_node()
    gateway.ready()
    until(lambda: not left(gateway), "nothing is left of the runs of the node before", SOON)
    assert "children of 10 runs were left behind" in gateway.node.log
    before = resumed()
    assert all(arguments[0] == "--resume" for arguments in before)
    assert len({arguments[1] for arguments in before}) == 10

    with ExitStack() as stack:
        wires = begin(stack)
        gateway.node.signal(signal.SIGTERM)
        until(lambda: "is draining" in gateway.edge.log, "the node takes no new runs")
        assert len(left(gateway)) == 20  # they may finish
        gateway.node.signal(signal.SIGTERM)
        for wire in wires:
            assert "[DONE]" not in wire.rest().events
        assert gateway.node.wait() == 0
    assert left(gateway) == []
    gateway.start_node()
    gateway.ready()
    assert resumed() == before


@pytest.mark.slow
def test_an_edge_that_is_killed_leaves_no_agent(make_gateway: Callable[..., Gateway], tmp_path: Path) -> None:
    """CL-05: nobody wants these answers any more. The session goes on under the edge that comes after."""
    folder = tmp_path / "gateway-0"
    gateway = make_gateway(agent("agent", grace_ms=int(GRACE * 1000), env={"FOLDER": str(folder)})).start()
    with Wire(gateway.port) as streams, Wire(gateway.port) as whole:
        streams.send(chat("deaf", model="agent", stream=True, metadata={"session_id": "s"}))
        streams.begin(2)
        whole.send(chat("hang", model="agent"))
        until(lambda: len(left(gateway)) == 4, "there are four processes")
        gateway.edge.kill()
        until(lambda: not left(gateway), "nothing is left of any run", SOON)
    gateway.start_edge()
    gateway.ready()
    assert json.loads(order(gateway.client(), "tell arguments", session_id="s"))[0] == "--resume"


# ---- what a client sees of an agent's trouble -----------------------------------------------------------------------

TROUBLE: dict[str, tuple[str, str, int, str, str]] = {
    "not installed": ("absent", "hello", 502, "upstream_error", "the program no-such-agent is not in the PATH"),
    "fails": ("agent", "fail 3 Error: not logged in", 502, "upstream_error", "(exit status 3): Error: not logged in"),
    "fails with secrets": (
        "agent",
        "fail 1 Error: no /home/op/.agent/key.json at http://10.0.0.5:8080/v1 for sk-abcdefgh12345678",
        502,
        "upstream_error",
        "Error: no [path] at [address] for [hidden]",
    ),
    "ends well without a result": ("agent", "fail 0", 502, "upstream_error", "without a result"),
    "is limited": ("agent", "refuse 429", 429, "rate_limit_exceeded", "limit reached"),
    "is refused": ("agent", "refuse 500", 502, "upstream_error", "limit reached"),
}
"""The model, the order, and the status, code and words that come of it."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", TROUBLE)
def test_an_agents_trouble(adapters: Gateway, client: openai.OpenAI, name: str, stream: bool) -> None:
    """CL-07, CL-08: nothing was said yet, so it is an HTTP error, streaming or not, and of OpenAI's shape."""
    model, prompt, status, code, words = TROUBLE[name]
    with pytest.raises(openai.APIStatusError) as caught:
        (ask_stream if stream else order)(client, prompt, model)
    error = caught.value
    assert (error.status_code, error.code) == (status, code)
    assert isinstance(error, openai.RateLimitError if status == 429 else openai.InternalServerError)
    assert words in error.message
    body: Any = error.body
    assert set(body) == {"message", "type", "param", "code"}
    assert isinstance(body["type"], str)
    for secret in (str(adapters.folder), "fake_agent", "/home", "10.0.0.5", "sk-", "Traceback"):
        assert secret not in error.response.text


def test_an_agent_that_is_killed_in_the_middle(client: openai.OpenAI) -> None:
    """CL-01: half an answer never looks whole."""
    with pytest.raises(openai.InternalServerError) as caught:
        order(client, "die")
    assert (caught.value.status_code, caught.value.code) == (502, "upstream_error")
    assert "SIGKILL" in caught.value.message
    stream = client.chat.completions.create(model="agent", messages=user("die"), stream=True)
    read: list[Any] = []
    with pytest.raises(openai.APIError, match="SIGKILL") as broken:
        read.extend(stream)
    assert broken.value.code == "upstream_error"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in read) == "half"


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_that_strays_is_not_believed(client: openai.OpenAI, stream: bool) -> None:
    session = {"session_id": f"strays-{stream}"}
    order(client, "hello", **session)
    with pytest.raises(openai.APIStatusError) as caught:
        (ask_stream if stream else order)(client, "stray", **session)
    assert (caught.value.status_code, caught.value.code) == (410, "session_gone")
    assert order(client, "still you?", **session) == "still you?"
