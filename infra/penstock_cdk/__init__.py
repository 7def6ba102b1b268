"""Penstock as a construct of the CDK: `Penstock(stack, "Queue")` puts a whole Penstock into a stack of your own.

This module imports what it exports only when you use it, so that programs without the CDK can read the settings.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock_cdk.declared.schedule import Schedule
    from penstock_cdk.declared.share_group import Group, ShareGroup
    from penstock_cdk.declared.subscription import Subscription
    from penstock_cdk.declared.targets import MirrorStage
    from penstock_cdk.declared.topic import Topic
    from penstock_cdk.overrides import settings_of_app
    from penstock_cdk.penstock import Penstock
    from penstock_cdk.settings import STAGES, Canary, Metrics, RestoredTables, StageSettings
    from penstock_cdk.walls import Jwt

_MODULES = {
    "Penstock": "penstock_cdk.penstock",
    "Canary": "penstock_cdk.settings",
    "Group": "penstock_cdk.declared.share_group",
    "Jwt": "penstock_cdk.walls",
    "Metrics": "penstock_cdk.settings",
    "MirrorStage": "penstock_cdk.declared.targets",
    "RestoredTables": "penstock_cdk.settings",
    "STAGES": "penstock_cdk.settings",
    "StageSettings": "penstock_cdk.settings",
    "Schedule": "penstock_cdk.declared.schedule",
    "ShareGroup": "penstock_cdk.declared.share_group",
    "Subscription": "penstock_cdk.declared.subscription",
    "Topic": "penstock_cdk.declared.topic",
    "settings_of_app": "penstock_cdk.overrides",
}

__all__ = [
    "STAGES",
    "Canary",
    "Group",
    "Jwt",
    "Metrics",
    "MirrorStage",
    "Penstock",
    "RestoredTables",
    "Schedule",
    "ShareGroup",
    "StageSettings",
    "Subscription",
    "Topic",
    "settings_of_app",
]


def __getattr__(name: str) -> Any:
    """Imports the module of an exported name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
