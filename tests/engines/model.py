"""The language model of the engine and release tests: `small.gguf`, next to this file.

It has 405,792 parameters and a vocabulary of 764 tokens (Llama, Q8_0, MIT). This project trained it
on made-up sentences, so that engines can be tested offline with a model that calls tools. It knows
the tools of `asking.py`; its replies prove nothing about other models.
"""

from pathlib import Path

MODEL_FILE = Path(__file__).with_name("small.gguf")
NAME = MODEL_FILE.stem  # for clients
WINDOW = 2048
# a second thread would mostly wait for the first one
FLAGS = ("-t", "1")
