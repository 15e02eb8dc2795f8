"""The agents: their settings as ``docs/agents.md`` has them, and what keeps each of them on this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

MANUAL = Path(__file__).parents[2] / "docs" / "agents.md"
MARK = "IOP_REAL_TESTS"
"""A variable in every agent's environment: whose its processes are."""

_UUID = "22222222-2222-4222-8222-222222222222"


class Agent(NamedTuple):
    """One agent.

    :ivar package: npm's name of it.
    :ivar offline: prepares a home directory for a mock at a URL; returns more of the environment.
    :ivar strangers: session ids of the right look that the agent has never heard of.
    """

    name: str
    package: str
    offline: Callable[[Path, str], Mapping[str, str]]
    strangers: tuple[str, ...] = (_UUID,)


def _claude(home: Path, mock: str) -> Mapping[str, str]:
    return {
        "ANTHROPIC_BASE_URL": mock,
        "ANTHROPIC_API_KEY": "",
        "ANTHROPIC_AUTH_TOKEN": "k",
        "ANTHROPIC_MODEL": "claude-sonnet-4-5",
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }


def _codex(home: Path, mock: str) -> Mapping[str, str]:
    _write(
        home / ".codex" / "config.toml",
        f"""\
model = "mock-model"
model_provider = "mock"
check_for_update_on_startup = false
[model_providers.mock]
name = "mock"
base_url = "{mock}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[analytics]
enabled = false
[features]
plugins = false
remote_plugin = false
apps = false
""",
    )
    return {"OPENAI_API_KEY": "k"}


def _opencode(home: Path, mock: str) -> Mapping[str, str]:
    options = {"baseURL": f"{mock}/v1", "apiKey": "k"}
    config = {
        "model": "mock/mock-model",
        "small_model": "mock/mock-model",
        "provider": {
            "mock": {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"mock-model": {"name": "mock"}}}
        },
        "permission": {"*": "allow"},
        "autoupdate": False,
        "share": "disabled",
    }
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "OPENCODE_DISABLE_MODELS_FETCH": "1"}


def _gemini(home: Path, mock: str) -> Mapping[str, str]:
    _write(
        home / ".gemini" / "settings.json",
        json.dumps(
            {
                "security": {"auth": {"selectedType": "gemini-api-key"}},
                "privacy": {"usageStatisticsEnabled": False},
                "general": {"disableAutoUpdate": True, "disableUpdateNag": True, "enableAutoUpdate": False},
            }
        ),
    )
    return {"GOOGLE_GEMINI_BASE_URL": mock, "GEMINI_API_KEY": "k"}


def _qwen(home: Path, mock: str) -> Mapping[str, str]:
    _write(
        home / ".qwen" / "settings.json",
        json.dumps(
            {
                "security": {"auth": {"selectedType": "openai"}},
                "privacy": {"usageStatisticsEnabled": False},
                "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
            }
        ),
    )
    return {"OPENAI_BASE_URL": f"{mock}/v1", "OPENAI_API_KEY": "k", "OPENAI_MODEL": "mock-model"}


AGENTS = (
    Agent("claude", "@anthropic-ai/claude-code", _claude),
    # a name that is no UUID makes codex begin a new thread without a word
    Agent("codex", "@openai/codex", _codex, ("01a22994-0000-7000-8000-000000000000", "nobody")),
    Agent("opencode", "opencode-ai", _opencode, ("ses_doesnotexist0000000000000",)),
    Agent("gemini", "@google/gemini-cli", _gemini),
    Agent("qwen", "@qwen-code/qwen-code", _qwen),
)


def provider(agent: Agent, program: Path, home: Path, mock: str, mark: str) -> dict[str, Any]:
    """Return an adapter and a provider for :class:`real_gateway.Gateway`: the manual's, with the mock as its API."""
    home.mkdir(parents=True)
    (home / "tmp").mkdir()
    adapter = documented()[agent.name]
    around = {"HOME": str(home), "TMPDIR": str(home / "tmp"), MARK: mark}
    env = {**adapter.get("env", {}), **agent.offline(home, mock), **around}
    adapter = {**adapter, "command": str(program), "env": env, "request_timeout_ms": 90_000}
    entry = {"id": agent.name, "type": "cli", "category": "cli", "adapter": agent.name, "models": [agent.name]}
    return {"adapter": adapter, "provider": {**entry, "capacity": 2}}


def documented() -> dict[str, dict[str, Any]]:
    """Return the manual's adapters by their names."""
    blocks = re.findall(r"^```yaml\n(- name: .*?)^```", MANUAL.read_text(), re.DOTALL | re.MULTILINE)
    return {adapter["name"]: adapter for block in blocks for adapter in yaml.safe_load(block)}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(text)
