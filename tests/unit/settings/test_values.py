import pytest
from pydantic import SecretStr, TypeAdapter, ValidationError

from proxy.errors import InvalidConfiguration
from proxy.settings import load_settings
from proxy.settings.values import Count, Duration, Headers, Key, Name, Origin, Url


def error_of(**model: object) -> str:
    with pytest.raises(InvalidConfiguration) as raised:
        load_settings(None, {"model": model})
    return str(raised.value)


@pytest.mark.parametrize(("value", "layers"), [("auto", "auto"), ("12", 12), (0, 0)])
def test_gpu_layers_accept_auto_and_a_number(value: object, layers: object) -> None:
    assert load_settings(None, {"model": {"gpu_layers": value}}).model.gpu_layers == layers


@pytest.mark.parametrize("value", ["all", "-1", True, 1.5])
def test_gpu_layers_that_are_neither_auto_nor_a_number_are_refused(value: object) -> None:
    assert "should be auto or a number of layers" in error_of(gpu_layers=value)


def test_a_quantized_v_cache_without_flash_attention_is_refused() -> None:
    problem = error_of(cache_type_v="q8_0", flash_attention="off")
    assert "model.cache_type_v: a quantized V cache requires flash attention" in problem
    fine = {"cache_type_k": "q8_0", "cache_type_v": "bf16", "flash_attention": "off"}
    assert load_settings(None, {"model": fine}).model.cache_type_k == "q8_0"
    assert load_settings(None, {"model": {"cache_type_v": "q8_0"}}).model.cache_type_v == "q8_0"


def test_the_error_for_an_unknown_cache_type_lists_the_known_types() -> None:
    assert "'q8_0'" in error_of(cache_type_k="q9")


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["--port", "9"], "--port: set port"),
        (["-t", "4", "-c=1"], "-c: set context_tokens"),
        (["--api-key", "canary"], "Temper generates a key"),
        (["--hf-token=canary"], "set HF_TOKEN in the environment"),
    ],
)
def test_extra_arguments_that_temper_sets_are_refused_without_showing_secrets(
    arguments: list[str], remedy: str
) -> None:
    problem = error_of(extra_arguments=arguments)
    assert remedy in problem
    assert "canary" not in problem


def test_extra_arguments_that_temper_does_not_set_are_accepted() -> None:
    arguments = ["-t", "4", "--mlock"]
    settings = load_settings(None, {"model": {"extra_arguments": arguments}})
    assert settings.model.extra_arguments == arguments


@pytest.mark.parametrize("name", ["owner/name", "owner/na.me-1:Q4_K_M"])
def test_an_hf_repo_that_is_not_owner_and_name_is_refused(name: str) -> None:
    assert load_settings(None, {"model": {"hf_repo": name}}).model.source == name
    assert "should be like owner/name" in error_of(hf_repo=name.replace("/", " "))


def test_hf_repo_cannot_be_combined_with_model_path_or_backend_url() -> None:
    assert "model.hf_repo: cannot be combined with model.path" in error_of(path="x", hf_repo="a/b")
    two = {"model": {"hf_repo": "a/b"}, "backend": {"url": "http://127.0.0.1:1"}}
    with pytest.raises(InvalidConfiguration, match=r"combined with model\.hf_repo"):
        load_settings(None, two)


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (Count, True, "should be a number"),
        (Duration, "5 minutes", "match pattern"),
        (Origin, "https://chat.example.com/path", "without a path"),
        (Url, "ftp://host", "should be an address"),
        (Url, "http://me:secret@host", "use backend.api_key"),
        (Url, "http://host?x=1", "query or a fragment"),
        (Key, "with space", "visible ASCII"),
        (Headers, {"a b": "c"}, "not the name of a header"),
    ],
)
def test_an_invalid_value_is_refused_with_the_reason(
    kind: type[object], value: object, problem: str
) -> None:
    with pytest.raises(ValidationError, match=problem):
        TypeAdapter(kind).validate_python(value)


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (Count, 3, 3),
        (Duration, "1h30m", "1h30m"),
        (Origin, "http://localhost:3000", "http://localhost:3000"),
        (Url, "http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        (Url, "", None),
        (Name, "", None),
        (Key, "k", SecretStr("k")),
        (Headers, {"X-Team": "a"}, {"X-Team": SecretStr("a")}),
    ],
)
def test_a_valid_value_is_converted(kind: type[object], value: object, read: object) -> None:
    assert TypeAdapter(kind).validate_python(value) == read
