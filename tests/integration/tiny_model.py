"""A llama of a few hundred kilobytes whose weights know one sentence, for llama.cpp's own server to serve.

Attention and feed-forward write nothing into the residual stream, so what comes next depends on the last token
alone: a table of "after this word, that word", which greedy sampling follows. Tokenizer, chat template, grammar,
sampling and cache are llama.cpp's own work, as with any model. Runs as a program:
``tiny_model.py OUT [endless]``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

WORDS = ("Every", "▁answer", "▁of", "▁this", "▁model", "▁is", "▁the", "▁same", "▁short", "▁line", ".")
SENTENCE = "".join(WORDS).replace("▁", " ")

AT_ONCE, END_OF_TURN, CALLS = "<|im_start|>", "<|im_end|>", "<|im_call|>"
CALL, CALL_END = "<tool_call>", "</tool_call>"
RESULT, RESULT_END = "<tool_response>", "</tool_response>"
NEWLINE = "\n"
WRITTEN = (CALL, '{"name":', '▁"weather",', '▁"arguments":', '▁{"city":', '▁"Ulm"}}', CALL_END)
"""What a model says that was taught to write a call as text, whatever it is asked."""

TEMPLATE = """
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- 'You may call these functions; each line between the tags describes one.\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
    {{- '\\n</tools>\\nA call is a JSON object with the keys name and arguments, between <tool_call> and '
        '</tool_call>.<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant' }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- set call = call.function or call %}
            {{- '\\n<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
            {{- call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if tools and messages[-1].role != 'tool' %}{{- '<|im_call|>' }}{%- endif %}
{%- endif %}
"""
"""Turns and calls as Hermes and Qwen write them. Offered tools end the prompt with a mark that the weights know."""


@dataclass(frozen=True)
class Size:
    """How much a token costs, and how long a conversation may be."""

    layers: int = 1
    feed_forward: int = 32
    context: int = 8192
    embedding: int = 64
    heads: int = 2


QUICK = Size()
SLOW = Size(layers=4, feed_forward=8192, context=16384)
"""About 13 MB: slow enough that an answer lasts until it is cancelled."""


class Vocabulary:
    """Pieces in the order of their ids, as a SentencePiece model has them: bytes, marks, letters, words."""

    def __init__(self, words: Iterable[str] = WORDS) -> None:
        self.pieces: list[str] = []
        self.kinds: list[int] = []
        self.scores: list[float] = []
        self.ids: dict[str, int] = {}
        kind = gguf.TokenType
        self._add("<unk>", kind.UNKNOWN)
        self._add("<s>", kind.CONTROL)
        self._add("</s>", kind.CONTROL)
        for value in range(256):
            self._add(f"<0x{value:02X}>", kind.BYTE)
        self.ids[NEWLINE] = self.ids["<0x0A>"]
        for mark in (AT_ONCE, END_OF_TURN, CALLS):
            self._add(mark, kind.CONTROL)
        for mark in (CALL, CALL_END, RESULT, RESULT_END):
            self._add(mark, kind.USER_DEFINED)
        for letter in ("▁", *map(chr, range(33, 127))):
            self._add(letter, kind.NORMAL, -1000.0 - ord(letter) / 1e5)
        for word in words:  # pieces are merged pair by pair, so each beginning of a word is a piece too
            for length in range(2, len(word) + 1):
                self._add(word[:length], kind.NORMAL, -float(length))

    def _add(self, piece: str, kind: gguf.TokenType, score: float = 0.0) -> None:
        if piece not in self.ids:
            self.ids[piece] = len(self.pieces)
            self.pieces.append(piece)
            self.kinds.append(int(kind))
            self.scores.append(score)

    def __len__(self) -> int:
        return len(self.pieces)


class NextWord:
    """The two tables of weights: what a token looks like, and which tokens that look brings.

    Dimension 0 is 3 in every embedding, so that a weight on it is a bias; each token of the sentence has a dimension
    of its own; all others share the rest at random. Rows are as long as RMSNorm leaves them, which makes it nothing.
    """

    BIAS = 3.0
    SURE = 30.0

    def __init__(self, words: Vocabulary, size: Size) -> None:
        self._ids = words.ids
        named = (*WORDS, *WRITTEN, NEWLINE, CALLS, CALL, CALL_END)
        own = sorted({words.ids[piece] for piece in named if piece in words.ids})
        chance = np.random.default_rng(20)
        rest = size.embedding - 1 - len(own)
        length = size.embedding - self.BIAS**2
        look = np.zeros((len(words), size.embedding), np.float32)
        look[:, -rest:] = chance.standard_normal((len(words), rest))
        look[own] = 0
        look[own, np.arange(1, 1 + len(own))] = 1
        look *= np.sqrt(length) / np.linalg.norm(look, axis=1, keepdims=True)
        look[:, 0] = self.BIAS
        self.look = look
        self.brings = np.zeros_like(look)
        self._unit = 1 / length

    def after(self, piece: str, following: str, weight: float = SURE) -> None:
        """Make ``following`` what is said after ``piece``."""
        self.brings[self._ids[following], 1:] += weight * self._unit * self.look[self._ids[piece], 1:]

    def always(self, piece: str, weight: float) -> None:
        """Make ``piece`` likely, whatever comes before it."""
        self.brings[self._ids[piece], 0] += weight / self.BIAS


def taught(words: Vocabulary, size: Size, *, endless: bool) -> NextWord:
    """Return weights that say the sentence, once or for ever, and call a tool where tools are offered."""
    table = NextWord(words, size)
    last = WORDS[0] if endless else END_OF_TURN
    for piece, following in zip((NEWLINE, *WORDS), (*WORDS, last), strict=True):
        table.after(piece, following)
    table.after(CALLS, CALL)
    table.after(CALL, NEWLINE)
    table.after(CALL_END, END_OF_TURN)
    table.after(WORDS[-1], '"', 24.0)  # inside a JSON string, where a turn may not end
    table.always(WORDS[0], 14.0)  # after any other token the sentence begins
    # a grammar rules out most of that: then close what is open
    for piece, weight in ((CALL_END, 12), ('"', 11), ("}", 10), ("]", 9.5), (":", 9), (",", 9), ("a", 5)):
        table.always(piece, float(weight))
    table.always(END_OF_TURN, 8.0)
    return table


def taught_to_write(words: Vocabulary, size: Size) -> NextWord:
    """Return weights that say :data:`WRITTEN`."""
    table = NextWord(words, size)
    for piece, following in zip((NEWLINE, *WRITTEN), (*WRITTEN, END_OF_TURN), strict=True):
        table.after(piece, following)
    return table


def write(path: Path, size: Size = QUICK, *, endless: bool = False, calls_as_text: bool = False) -> None:
    """Write the model file."""
    words = Vocabulary((*WORDS, *WRITTEN) if calls_as_text else WORDS)
    table = taught_to_write(words, size) if calls_as_text else taught(words, size, endless=endless)
    out = gguf.GGUFWriter(str(path), "llama")
    out.add_name("tiny")
    out.add_context_length(size.context)
    out.add_embedding_length(size.embedding)
    out.add_block_count(size.layers)
    out.add_feed_forward_length(size.feed_forward)
    out.add_head_count(size.heads)
    out.add_head_count_kv(size.heads)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(size.embedding // size.heads)
    out.add_vocab_size(len(words))
    out.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    out.add_tokenizer_model("llama")
    out.add_tokenizer_pre("default")
    out.add_token_list(words.pieces)
    out.add_token_scores(words.scores)
    out.add_token_types(words.kinds)
    out.add_unk_token_id(words.ids["<unk>"])
    out.add_bos_token_id(words.ids["<s>"])
    out.add_eos_token_id(words.ids[END_OF_TURN])
    for switch in (out.add_add_bos_token, out.add_add_eos_token, out.add_add_space_prefix):
        switch(False)
    out.add_chat_template(TEMPLATE)
    for name, values in tensors(table, size):
        out.add_tensor(name, values)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def tensors(table: NextWord, size: Size) -> Iterable[tuple[str, np.ndarray]]:
    """Name every tensor; each layer works hard and adds zero."""
    wide, deep = size.embedding, size.feed_forward
    yield "token_embd.weight", table.look.astype(np.float16)
    yield "output.weight", table.brings.astype(np.float16)
    yield "output_norm.weight", np.ones(wide, np.float32)
    chance = np.random.default_rng(21)

    def noise(rows: int) -> np.ndarray:
        return (chance.standard_normal((rows, wide)) / 50).astype(np.float16)

    for layer in range(size.layers):
        name = f"blk.{layer}.{{}}.weight".format
        for part in ("attn_norm", "ffn_norm"):
            yield name(part), np.ones(wide, np.float32)
        for part in ("attn_q", "attn_k", "attn_v"):
            yield name(part), noise(wide)
        for part in ("ffn_gate", "ffn_up"):
            yield name(part), noise(deep)
        yield name("attn_output"), np.zeros((wide, wide), np.float16)
        yield name("ffn_down"), np.zeros((wide, deep), np.float16)


if __name__ == "__main__":
    slow = sys.argv[2:] == ["endless"]
    write(Path(sys.argv[1]), SLOW if slow else QUICK, endless=slow)
