"""A byte-level BPE tokenizer with a chat template, trained on the spot: tags are several tokens,
and a token may reach across the border of a tag, as in real models."""

from __future__ import annotations

from functools import cache

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

_TEXTS = [
    "<think>I look at the desk.</think> <action>go to desk 1</action>",
    "<think>The mug is on the shelf.</think> <action>take mug 1 from shelf 1</action>",
    "You are at step 2. Your admissible actions are: look, go to desk 1, go to shelf 1.",
] * 8
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@cache
def bpe_tokenizer() -> PreTrainedTokenizerFast:
    inner = Tokenizer(BPE())
    inner.pre_tokenizer = ByteLevel(add_prefix_space=False)
    inner.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=400,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(_TEXTS, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>")
    tokenizer.chat_template = _TEMPLATE
    return tokenizer
