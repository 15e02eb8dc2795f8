"""What a backend's refusal is about: the native tool API, or a field that the gateway added. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from iop.errors import Failure

_TOOLS: Final = r"(?:tools?|tool[ _-]?use|tool[ _-]?call(?:s|ing)|function[ _-]?call(?:s|ing))\b"

_NO_TOOLS: Final = re.compile(
    "|".join(
        (
            r"--enable-auto-tool-choice|--tool-call-parser",  # vLLM, SGLang: a parser was not chosen
            r"requires? (?:the )?--jinja",  # llama.cpp without templates
            r"unsupported param: tools",  # llama.cpp, older
            rf"(?:does not|doesn't|do not|don't|cannot|not) support (?:the )?(?:use of )?{_TOOLS}",  # Ollama, DeepSeek
            rf"(?<!parallel )(?<!parallel_)\b{_TOOLS}[`'\"]* (?:is|are) not (?:supported|available|enabled)",  # Groq
            rf"no endpoints found that support {_TOOLS}",  # OpenRouter
        )
    ),
    re.IGNORECASE,
)

_NO_TOOLS_STATUS: Final = frozenset({400, 404, 405, 422, 501, 502})
"""502 stands for a 500, as llama.cpp says it, and for an error inside an answer under status 200."""

_BAD_REQUEST: Final = frozenset({400, 422})
_COMMON: Final = frozenset({"max_tokens", "enabled", "type"})
"""Names inside a member that are names of many things."""


def refuses_tools(failure: Failure) -> str:
    """Return the words by which a backend refuses the native tool API; "" when it is about something else."""
    if failure.http_status not in _NO_TOOLS_STATUS:
        return ""
    match = _NO_TOOLS.search(failure.message)
    return match[0] if match is not None else ""


def refuses_fields(failure: Failure, paths: Iterable[str]) -> str:
    """Return which of these fields, dotted paths, a backend refuses; "" when it is about something else."""
    if failure.http_status not in _BAD_REQUEST:
        return ""
    said = f"{failure.message} {failure.param or ''}"
    names = {name for path in paths for name in (path.partition(".")[0], path.rpartition(".")[2])} - _COMMON
    return next((name for name in sorted(names) if re.search(rf"\b{re.escape(name)}\b", said, re.IGNORECASE)), "")
