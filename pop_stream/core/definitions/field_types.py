"""Which type the values have at a path of a definition."""

from collections.abc import Sequence
from dataclasses import is_dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel


def type_at(kind: Any, path: Sequence[str]) -> Any:  # noqa: ANN401  # types are no one type
    """The type of a single value at a path; None where any JSON may be."""
    if get_origin(kind) is tuple:
        kind = get_args(kind)[0]
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in {Union, UnionType}:
        models = [one for one in get_args(kind) if _is_model(one)]
        kind = models[0] if models else kind
    if _is_model(kind):
        info = kind.model_fields.get(path[0]) if path else None
        return type_at(info.annotation, path[1:]) if info else None
    if any(is_dataclass(one) for one in (kind, *get_args(kind))):
        return None
    if (
        path
        or get_origin(kind) is dict
        or any(get_origin(one) is dict for one in get_args(kind))
    ):
        return None
    return _bare(kind)


def _bare(kind: Any) -> Any:  # noqa: ANN401  # types are no one type
    """The type without its bounds: what nothing can have is found nowhere, and no fault."""
    if get_origin(kind) is Annotated:
        return _bare(get_args(kind)[0])
    if get_origin(kind) in {Union, UnionType}:
        return Union[tuple(map(_bare, get_args(kind)))]  # noqa: UP007  # made of a tuple
    return kind


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
