"""Qwen2.5's chat template without its tool calls, and a tokenizer whose ids can be read by hand.

The template is that of `tokenizer_config.json` of Qwen/Qwen2.5-*-Instruct, the branches for tools
left out: a system message is put first where there is none.
"""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

QWEN25_TEMPLATE = """\
{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.\
<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or \
(message.role == "assistant") %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
SPECIAL = {"<|endoftext|>": 256, "<|im_start|>": 257, "<|im_end|>": 258}


def byte_tokenizer(template: str, adds_bos: bool = False) -> PreTrainedTokenizerFast:
    """One id per byte (its value) and three special tokens; with `adds_bos` it puts `<|endoftext|>`
    before a text, as the tokenizers of some families do."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet(), key=_byte_of)
    inner = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    if adds_bos:
        inner.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 256)]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=template,
    )


def by_hand(text: str) -> tuple[int, ...]:
    """The ids of a text: special tokens whole, the rest byte by byte."""
    ids: list[int] = []
    while text:
        token = next((token for token in SPECIAL if text.startswith(token)), None)
        if token:
            ids.append(SPECIAL[token])
            text = text.removeprefix(token)
        else:
            ids += text[0].encode()
            text = text[1:]
    return tuple(ids)


def _byte_of(char: str) -> int:
    """The byte that a character of the byte-level alphabet stands for (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    code = ord(char)
    return code if code in printable else others[code - 256]
