"""``iop up``: the main job in one command."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from iop.cli.detect import AGENTS, Found, Usual
from iop.cli.embedded import configuration
from iop.cli.iop import main
from iop.cli.up import default_state_dir
from iop.edge.config import load_document

pytestmark = pytest.mark.slow

AGENT = Path(__file__).parents[1] / "node" / "fake_agent.py"


class Up:
    """``iop up`` as a process, up and answering.

    :param environ: what is other in its environment.
    """

    def __init__(self, state_dir, *arguments, **environ):
        command = [sys.executable, "-P", "-m", "iop.cli.iop", "up", "--state-dir", str(state_dir), *arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environ}
        )
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.communicate(timeout=10)[1])
        self.first_line = line

    def stop(self, number=signal.SIGINT):
        self.process.send_signal(number)
        # not communicate(): what follows the first line may be in the buffer already
        out, err = self.process.stdout.read(), self.process.stderr.read()
        return self.process.wait(20), out, err


@pytest.fixture
def demo(tmp_path):
    up = Up(tmp_path / "state", "--port", "0", "--no-detect", "--json")
    yield up, json.loads(up.first_line)
    if up.process.poll() is None:
        up.stop(signal.SIGKILL)


def ask(base_url, **members):
    document = {"model": "demo", "messages": [{"role": "user", "content": "Are you there?"}], **members}
    request = urllib.request.Request(
        f"{base_url}/chat/completions", json.dumps(document).encode(), {"content-type": "application/json"}
    )
    return urllib.request.urlopen(request, timeout=20)


def test_demo_answers_the_whole_way(demo):
    up, said = demo
    assert said["demo"] is True
    assert said["models"] == ["demo"]
    answer = json.load(ask(said["base_url"]))
    assert "Are you there?" in answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"]
    assert up.stop()[0] == 0


def test_an_agent_that_is_installed_answers_the_whole_way(tmp_path):
    """Whatever else this machine has on the usual ports, the only agent in PATH is this one."""
    agent = tmp_path / "bin" / "claude"
    agent.parent.mkdir()
    agent.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S {shlex.quote(str(AGENT))} "$@"\n')
    agent.chmod(0o755)
    up = Up(tmp_path / "state", "--port", "0", "--json", PATH=str(agent.parent))
    try:
        said = json.loads(up.first_line)
        assert said["agents"] == [{"command": "claude", "model": "claude-agent"}]
        assert "claude-agent" in said["models"]
        answer = json.load(ask(said["base_url"], model="claude-agent"))
        assert answer["choices"][0]["message"]["content"] == "Are you there?"
        assert answer["usage"]["completion_tokens"] == 3
    finally:
        up.stop()


def test_demo_streams_and_has_no_usage_unless_asked(demo):
    _, said = demo
    events = [line[6:] for line in ask(said["base_url"], stream=True).read().decode().splitlines() if line]
    chunks = [json.loads(event) for event in events[:-1]]
    assert events[-1] == "[DONE]"
    assert all(chunk["choices"] for chunk in chunks)
    assert "Are you there?" in "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


def test_interrupt_finishes_what_runs(demo):
    up, said = demo
    stream = ask(said["base_url"], stream=True)
    stream.readline()
    up.process.send_signal(signal.SIGINT)
    assert stream.read().endswith(b"data: [DONE]\n\n")
    assert up.process.wait(20) == 0


def test_state_is_kept_from_others_and_its_edge_yaml_loads(demo):
    _, said = demo
    state = said["state_dir"]
    assert stat.S_IMODE(os.stat(f"{state}/node.token").st_mode) == 0o600
    document = yaml.safe_load(open(f"{state}/edge.yaml"))
    assert load_document(document, environ={}).config.edge.id == "up"
    token = open(f"{state}/node.token").read().strip()
    assert token not in open(f"{state}/edge.yaml").read()
    assert token not in open(f"{state}/iop.log").read()


def test_text_says_what_a_person_needs(tmp_path):
    up = Up(tmp_path, "--port", "0", "--no-detect")
    status, rest, _ = up.stop()
    text = up.first_line + rest
    assert status == 0
    for word in ("http://127.0.0.1:", "DEMO", "curl", "Ctrl-C", str(tmp_path), "(64 at a time)"):
        assert word in text
    assert "start one" not in text  # nobody has looked
    assert text.endswith("finished first.\n")


def test_busy_port_is_one_sentence(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-P", "-m", "iop.cli.iop", "up", "--state-dir", str(tmp_path), "--port", port]
        done = subprocess.run([*command, "--no-detect"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot listen on tcp:" + port)
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def refused(*arguments):
    command = [sys.executable, "-P", "-m", "iop.cli.iop", "up", "--port", "0", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    return done.stderr


def test_one_at_a_time_in_a_state_directory(demo):
    up, said = demo
    before = open(f"{said['state_dir']}/edge.yaml").read()
    told = refused("--state-dir", said["state_dir"])
    assert f"already running, pid {up.process.pid}, at {said['base_url']};" in told
    assert open(f"{said['state_dir']}/edge.yaml").read() == before
    up.stop(signal.SIGKILL)
    again = Up(said["state_dir"], "--port", "0", "--no-detect", "--json")
    assert again.stop()[0] == 0


def test_the_saved_edge_yaml_has_the_ports_that_are_open(demo):
    _, said = demo
    text = open(f"{said['state_dir']}/edge.yaml").read()
    document = yaml.safe_load(text)
    assert document["openai"]["listen"].split(":")[1] == said["base_url"].split(":")[2].partition("/")[0]
    with socket.create_connection(("127.0.0.1", int(document["listen"].split(":")[1])), timeout=5):
        pass
    assert "# The demo's backend lives in `iop up` and nowhere else" in text
    assert said["providers"][0]["capacity"] == 64


def test_a_port_that_is_busy_leaves_no_edge_yaml(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused("--state-dir", tmp_path, "--no-detect", f"--port={taken.getsockname()[1]}")
    assert not (tmp_path / "edge.yaml").exists()


def test_a_state_directory_that_is_none(tmp_path):
    (tmp_path / "file").write_text("")
    file = tmp_path / "file"
    assert refused("--state-dir", file) == f"error: the state directory {file} is not a directory\n"
    assert f"{file} is not a directory" in refused("--state-dir", file / "below")


@pytest.mark.parametrize("kept", [None, b"\xff\xfe", b"two words\n", b"x" * 5000])
def test_a_token_that_is_none(tmp_path, kept):
    path = tmp_path / "node.token"
    path.mkdir() if kept is None else path.write_bytes(kept)
    told = refused("--state-dir", tmp_path, "--no-detect")
    assert str(path) in told
    assert told.endswith("remove it, and a new one is made\n")


def test_a_relative_state_home_counts_as_none(monkeypatch):
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setenv("XDG_STATE_HOME", "x")
    assert str(default_state_dir()) == "/h/.local/state/iop/up"
    monkeypatch.setenv("XDG_STATE_HOME", "/x")
    assert str(default_state_dir()) == "/x/iop/up"


def test_an_option_that_is_none_shows_the_usage_of_up(capsys):
    with pytest.raises(SystemExit):
        main(["up", "--prt", "1"])
    told = capsys.readouterr().err
    assert "usage: iop up" in told
    assert "unrecognized arguments: --prt 1" in told


@pytest.mark.parametrize("port", ["99999", "-1", "x"])
def test_a_port_that_is_none_is_a_usage_error(port, tmp_path):
    command = [sys.executable, "-P", "-m", "iop.cli.iop", "up", "--state-dir", str(tmp_path), f"--port={port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "from 0 to 65535" in done.stderr


def test_state_dir_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-P", "-m", "iop.cli.iop", "up", "--state-dir", str(tmp_path / "file" / "x")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_unknown_model_is_an_openai_error(demo):
    _, said = demo
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(said["base_url"], model="another")
    assert caught.value.code == 404
    assert json.load(caught.value)["error"]["code"] == "model_not_found"


def test_models_of_one_name_form_one_group():
    vllm = Found(Usual("vllm", "vLLM", 8000, 128), "http://127.0.0.1:8000", ("qwen", "/models/llama 3.gguf"))
    ollama = Found(Usual("ollama", "Ollama", 11434, 8), "http://127.0.0.1:11434", ("qwen",))
    document = configuration([vllm, ollama], "a" * 64, 4600, 4610, AGENTS)
    config = load_document(document, environ={}).config
    groups = {group.id: [(p.id, p.target) for p in group.providers] for group in config.models}
    assert groups == {
        "qwen": [("vllm-1", "qwen"), ("ollama-2", "qwen")],
        "llama-3.gguf": [("vllm-1", "/models/llama 3.gguf")],
        **{f"{name}-agent": [(name, f"{name}-agent")] for name in ("claude", "codex", "gemini", "opencode")},
    }
    urls = {adapter.name: adapter.settings.get("base_url") for adapter in config.nodes[0].adapters}
    assert (urls["vllm-1"], urls["ollama-2"]) == ("http://127.0.0.1:8000/v1", "http://127.0.0.1:11434")
    kinds = {adapter.name: adapter.type for adapter in config.nodes[0].adapters}
    assert (kinds["vllm-1"], kinds["ollama-2"], kinds["codex"]) == ("openai_compat", "ollama", "cli")


def test_a_strangers_words_are_not_interpolated():
    """A server on a usual port may list any name; it must not read this user's environment and files."""
    names = ("${env:SECRET}", "${file:/etc/passwd}", "$${x}")
    found = Found(Usual("vllm", "vLLM", 8000, 1), "http://127.0.0.1:8000", names)
    config = load_document(configuration([found], "a" * 64, 4600, 4610), environ={"SECRET": "s3cr3t"}).config
    assert set(config.nodes[0].providers[0].models) == set(names)
    assert {provider.target for group in config.models for provider in group.providers} == set(names)


def test_an_empty_token_is_made_anew(tmp_path):
    (tmp_path / "node.token").write_text("")
    up = Up(tmp_path, "--port", "0", "--no-detect", "--json")
    try:
        assert len((tmp_path / "node.token").read_text().strip()) > 20
    finally:
        up.stop()
