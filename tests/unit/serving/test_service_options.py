from proxy.profiles.known_model import Overrides
from proxy.serving.service_options import ServiceOptions
from tests.fakes.backend import ScriptedBackend


def test_a_service_has_what_the_options_say() -> None:
    service = ServiceOptions(parallel=3).service(
        ScriptedBackend(), name="small", aliases=("s",), upstream="org/small"
    )
    assert (service.name, service.aliases, service.upstream) == ("small", ("s",), "org/small")
    assert (service.parallel, service.fleet) == (3, None)


def test_a_model_may_have_wishes_of_its_own() -> None:
    options = ServiceOptions(overrides=Overrides(convention="json"))
    assert options.service(ScriptedBackend(), overrides=Overrides()).models is not None


def test_a_backend_alone_answers_for_every_name() -> None:
    backend = ScriptedBackend()
    services = ServiceOptions().alone(backend)
    assert services.find("whatever").backend is backend
