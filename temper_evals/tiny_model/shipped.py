"""The tiny model as it is shipped: its file, and the facts of its training that lie beside it."""

import hashlib
from pathlib import Path

from proxy.conversation import json
from proxy.conversation.json import JsonObject

MODEL_FILE = Path(__file__).with_name("tiny.gguf")
FACTS_FILE = Path(__file__).with_name("tiny.json")
WINDOW = 2048
# a second thread would wait for the first one most of the time
FLAGS = ("-t", "1")


def facts() -> JsonObject:
    """Return what is known of the training: seed, tokens, seconds, licence, results on the way."""
    found = json.parse(FACTS_FILE.read_bytes())
    return found if isinstance(found, dict) else {}


def content_hash() -> str:
    """Return a hash of the model, of its template and of all that it can be asked."""
    digest = hashlib.blake2b(digest_size=4)
    folder = MODEL_FILE.parent
    for path in (MODEL_FILE, *sorted(folder.glob("*.py")), *sorted(folder.glob("*.toml"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()
