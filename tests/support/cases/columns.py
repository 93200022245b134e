"""What columns of tables stand for where a word alone does not say it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from profiles import errors

AnError = Annotated[type[errors.PrimusError], BeforeValidator(lambda name: getattr(errors, name))]
"""An error of ours, by the name of its class."""
