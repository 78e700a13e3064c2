"""Imports the packages of other benchmarks, which are optional."""

import importlib
from types import ModuleType

from proxy.errors import InvalidConfiguration


def import_package(name: str, benchmark: str, without_dependencies: str = "") -> ModuleType:
    """Import a module of a benchmark; raises InvalidConfiguration, which says how to install it.

    `without_dependencies` is a package that is not in the extra, because it depends on clients of
    vendors.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        remedy = "pip install 'temper-proxy[benchmarks]'"
        if without_dependencies:
            remedy += f" && pip install --no-deps {without_dependencies}"
        problem = f"needs {error.name}: {remedy}"
        raise InvalidConfiguration(f"--benchmark {benchmark}", problem) from error
