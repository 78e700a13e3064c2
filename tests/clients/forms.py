"""The form that an answer may have to take."""

from pydantic import BaseModel


class Fact(BaseModel):
    """What is known about a city."""

    city: str
    country: str


FACT = Fact(city="Paris", country="France")
