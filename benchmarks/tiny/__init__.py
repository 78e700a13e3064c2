"""Trains the tiny model: `python -m benchmarks.tiny`, with the extra `train`.

`dialogues` writes what it learns from, `copying` what it learns first of all. `tokenizer` cuts
text, `model` is the network, `optimizer` and `train` make it better, `export` writes a GGUF and
`check` holds it to what the network says. `ladder` measures moments of the training. `page` writes
docs/tiny.md for `python -m benchmarks tiny`, and needs no torch.
"""
