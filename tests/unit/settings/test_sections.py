"""What all settings share; their bounds are tested where they are read, in `test_settings`."""

import pytest
from pydantic import BaseModel, ValidationError

from proxy.settings import models as served_models
from proxy.settings import sections

SECTIONS = [
    kind
    for kind in {**vars(sections), **vars(served_models)}.values()
    if isinstance(kind, type) and issubclass(kind, BaseModel)
]
SECTIONS = [kind for kind in SECTIONS if kind.model_fields]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_has_a_default_and_says_what_it_is_for(section: type[BaseModel]) -> None:
    section()
    assert section.__doc__
    assert all(field.description for field in section.model_fields.values())


@pytest.mark.parametrize("section", SECTIONS)
def test_nothing_unknown_gets_in_and_nothing_changes(section: type[BaseModel]) -> None:
    with pytest.raises(ValidationError):
        section.model_validate({"unheard_of": 1})
    name = next(iter(section.model_fields))
    with pytest.raises(ValidationError):
        setattr(section(), name, None)
