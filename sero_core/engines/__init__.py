"""Engines: `generate(prompts) -> completions with token ids and logprobs`, `score(...)`.

A runtime is imported from its own file by the code that trains; nothing here loads torch.
"""
