"""The package name before `temper` existed."""

import subprocess
import sys

import pytest

import proxy
import temper


def test_the_public_names_are_those_of_temper() -> None:
    assert set(dir(proxy)) >= set(temper.__all__)
    for name in temper.__all__:
        assert getattr(proxy, name) is getattr(temper, name)


def test_a_private_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="'Turn'"):
        _ = proxy.Turn  # type: ignore[attr-defined]


def test_importing_it_imports_no_submodule() -> None:
    program = "import proxy, sys; print([n for n in sys.modules if n[:6] in ('proxy.', 'temper')])"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
