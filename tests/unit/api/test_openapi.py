from fastapi import FastAPI

from proxy.api.openapi import describe_posts
from proxy.conversation import json


def test_the_chat_is_documented_with_its_schema_and_once() -> None:
    app = FastAPI()
    describe_posts(app, "/chat")
    first, second = app.openapi(), app.openapi()
    assert first == second
    operation = first["paths"]["/chat"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/ChatCompletionRequest"}
    assert "ChatMessage" in first["components"]["schemas"]


def test_every_reference_leads_somewhere() -> None:
    app = FastAPI()
    describe_posts(app, "/chat")
    document = app.openapi()
    text = json.dump_text(document)
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= set(document["components"]["schemas"])


def test_what_is_passed_on_is_documented_too() -> None:
    app = FastAPI()
    describe_posts(app, "/chat", ["/v1/embeddings"])
    operation = app.openapi()["paths"]["/v1/embeddings"]["post"]
    assert (operation["summary"], operation["operationId"]) == ("Embeddings", "embeddings")
    assert "without guardrails" in operation["description"]
