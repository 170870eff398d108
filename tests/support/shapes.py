"""Small schemas as pydantic models: few values, so that a weak model gives a whole answer in few tokens."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class Weather(BaseModel):
    """Tells the weather of a city."""

    city: Literal["Paris", "London", "Rome"]
    days: int = Field(ge=1, le=5)


class Dog(BaseModel):
    name: Literal["Rex", "Max"]
    ages: list[Literal[1, 2, 3]] = Field(min_length=1, max_length=3)
