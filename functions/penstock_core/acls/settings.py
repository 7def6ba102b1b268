"""The settings of a stage that decide without rules, from the environment of its functions."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from penstock_core.acls.rule import ALLOW, DENY, NamePattern, parse_principal_pattern
from penstock_core.acls.tokens import TokenSettings, token_settings_of

DEFAULT_VARIABLE = "PENSTOCK_ACL_DEFAULT"
SUPER_VARIABLE = "PENSTOCK_SUPER_PRINCIPALS"


@dataclass(frozen=True, slots=True, kw_only=True)
class AclSettings:
    """`allows_by_default` gives each right that no rule is about. `super_principals` may do everything at all times.

    Neither is about subjects of tokens. With `tokens`, the stage takes those of that issuer.
    """

    allows_by_default: bool = True
    super_principals: tuple[NamePattern, ...] = ()
    tokens: TokenSettings | None = None


def acl_settings_of(environ: Mapping[str, str]) -> AclSettings:
    """The settings in `PENSTOCK_ACL_DEFAULT` (allow, deny) and `PENSTOCK_SUPER_PRINCIPALS` (a JSON array of patterns).

    `token_settings_of` reads those of tokens.
    The first one must be there: a stage that denies by default is not open to a program that does not know it. Raises
    ValueError and INVALID_REQUEST for values that mean nothing.
    """
    default = environ.get(DEFAULT_VARIABLE)
    if default not in (ALLOW, DENY):
        raise ValueError(f"{DEFAULT_VARIABLE}={default!r}: must be {ALLOW} or {DENY}, as the stage's functions have it")
    patterns = json.loads(environ.get(SUPER_VARIABLE, "[]"))
    return AclSettings(
        allows_by_default=default == ALLOW,
        super_principals=tuple(parse_principal_pattern(each) for each in patterns),
        tokens=token_settings_of(environ),
    )
