"""Result cards: JSON files with the counts of an evaluation, which users can publish.

    {"version": 1, "model": {"name": "qwen3-8b-q4", "quantization": "Q4_K_M", ...},
     "suite": "quick", "protocol": "7a10b3b43cc28cc5",
     "arms": [{"arm": "direct", "runs": 60, "right": 31, ...}, ...], ...}

`card` is the format, whose types admit no texts. `environment` describes the model, the engine and
the machine of an evaluation, `making` makes a card from its records, and `published` checks a
folder of cards and compares each card with the previous card.
"""
