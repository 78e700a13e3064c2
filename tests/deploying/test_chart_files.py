"""The chart's files agree with the code and with each other; tested without Helm."""

import json

import jsonschema
import pytest
import yaml

from proxy.conversation.json import JsonObject
from tests.deploying.config_schema import CHART, SCHEMA, text_of, with_settings
from tests.test_repository import PROJECT, read

VALUES: JsonObject = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
VALUES_SCHEMA: JsonObject = json.loads(SCHEMA.read_text("utf-8"))


def test_the_schema_of_the_chart_contains_every_setting_of_temper() -> None:
    text = SCHEMA.read_text("utf-8")
    assert text == text_of(with_settings(VALUES_SCHEMA)), (
        "run python -m tests.deploying.config_schema"
    )


def test_the_schema_and_the_values_have_the_same_names() -> None:
    properties = VALUES_SCHEMA["properties"]
    assert isinstance(properties, dict)
    assert properties.keys() - VALUES.keys() == {"global"}  # Helm adds this key
    jsonschema.validate(VALUES, VALUES_SCHEMA)


@pytest.mark.parametrize("secret", ["sk-1", "$KEY", "${}", "{KEY}"])
def test_a_secret_in_the_value_config_violates_the_schema(secret: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"config": {"server": {"api_key": secret}}}, VALUES_SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"config": {"backend": {"headers": {"x": secret}}}}, VALUES_SCHEMA)


@pytest.mark.parametrize(
    ("url", "is_taken"),
    [
        ("valkey://valkey:6379?namespace=a", True),
        ("valkeys://:${PASSWORD}@valkey", True),
        ("valkey://:secret@valkey", False),
    ],
)
def test_a_store_url_with_a_password_violates_the_schema(url: str, *, is_taken: bool) -> None:
    validator = jsonschema.Draft202012Validator(VALUES_SCHEMA)
    assert validator.is_valid({"config": {"state": {"url": url}}}) == is_taken


@pytest.mark.parametrize("reference", ["${KEY}", "Bearer ${KEY}", ""])
def test_an_api_key_may_contain_a_variable_reference(reference: str) -> None:
    jsonschema.validate({"config": {"server": {"api_key": reference}}}, VALUES_SCHEMA)


def test_the_app_version_of_the_chart_is_the_version_of_temper() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["appVersion"] == PROJECT["project"]["version"]


def test_the_pod_runs_as_the_user_of_the_image() -> None:
    deployment = (CHART / "templates" / "deployment.yaml").read_text("utf-8")
    assert "--uid 10001 " in read("Dockerfile")
    assert deployment.count("10001") == 3
