"""What every group of settings is: frozen, and closed to keys that it does not know."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator


class Section(BaseModel):
    """A group of settings: frozen, and closed to keys that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_values_for_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false where a number is due; the reader would take them for 1 and 0."""
        field = cls.model_fields.get(info.field_name or "")
        if isinstance(value, bool) and field is not None and field.annotation in (int, float):
            raise ValueError("true and false are no values for this key")
        return value
