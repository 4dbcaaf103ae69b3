"""Constructor options: flat keywords for callers, small dataclasses inside.

For users all options are on one level: in YAML (``lr: 1e-3``), on the command line
(``agent.lr=1e-3``) and in Python (``DQN(env, lr=1e-3)``). Constructors receive related options as
one frozen dataclass, so each field is documented only once, in the dataclass. :func:`option_groups`
translates between the two, and shows the flat signature to ``inspect``. The check of configurations
reads the known keys from this signature.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_type_hints

from packing_env.names import close_names

Constructor = Callable[..., None]


def option_groups(init: Constructor) -> Constructor:
    """Collect the flat keywords of a decorated ``__init__`` into its dataclass parameters.

    A dataclass parameter is one whose default is an instance of a dataclass; this instance holds
    the default values. Callers set single fields by name, or pass a whole instance under the
    parameter's name. If they do both, the single fields have priority. No field may have the name
    of another field or parameter. The constructor raises ``TypeError`` for an unknown keyword, and
    names the closest known ones.
    """
    signature = inspect.signature(init)
    parameters = signature.parameters.values()
    defaults = {p.name: p.default for p in parameters if is_dataclass(p.default)}
    groups = {field.name: name for name, group in defaults.items() for field in fields(group)}
    flat = _flat_signature(signature, defaults)

    @functools.wraps(init)
    def construct(self: Any, *args: Any, **options: Any) -> None:
        _check_names(type(self).__name__, options, [*flat.parameters, *defaults])
        gathered: dict[str, dict[str, Any]] = {name: {} for name in defaults}
        for name in [name for name in options if name in groups]:
            gathered[groups[name]][name] = options.pop(name)
        for name, values in gathered.items():
            options[name] = replace(options.get(name, defaults[name]), **values)
        init(self, *args, **options)

    construct.__signature__ = flat  # type: ignore[attr-defined]  # read by inspect.signature
    return construct


def option_hints(target: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a target's arguments, and of the fields of their dataclasses.

    The result is empty if an annotation cannot be evaluated, for example because a user's module
    imports the type only for type checkers.
    """
    call = target.__init__ if inspect.isclass(target) else target
    try:
        hints = get_type_hints(call, include_extras=True)
        groups = [get_type_hints(h, include_extras=True) for h in hints.values() if is_dataclass(h)]
    except Exception:  # annotations may be any expression
        return {}
    return {name: hint for each in (hints, *groups) for name, hint in each.items()}


def _flat_signature(signature: inspect.Signature, defaults: dict[str, Any]) -> inspect.Signature:
    """Return the signature with each dataclass parameter replaced by its fields."""
    flat: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name not in defaults:
            flat.append(parameter)
            continue
        group = defaults[name]
        flat += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=getattr(group, field.name),
                annotation=field.type,
            )
            for field in fields(group)
        ]
    return signature.replace(parameters=flat)  # raises ValueError if a name occurs twice


def _check_names(constructor: str, options: dict[str, Any], known: list[str]) -> None:
    for name in options:
        if name not in known:
            raise TypeError(
                f"{constructor} got an unknown option {name!r}{close_names(name, known)} "
                f"(it takes {', '.join(known[2:])})"
            )
