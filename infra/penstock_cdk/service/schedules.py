"""The schedules: how often each scheduled function runs."""

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from penstock_cdk.service.functions import construct_name
from penstock_cdk.service.measuring import MEASURE
from penstock_cdk.service.push import LOOK
from penstock_cdk.service.timers import PROMOTE
from penstock_cdk.settings import AUDIT, StageSettings

RATES: Mapping[str, Duration] = {
    "recover_zones": Duration.minutes(1),
    PROMOTE: Duration.minutes(1),
    MEASURE: Duration.minutes(1),
    AUDIT: Duration.minutes(5),
    LOOK: Duration.minutes(5),
    "retention": Duration.minutes(15),
    "scrub": Duration.hours(1),
    "tier": Duration.hours(1),
    "sweep": Duration.days(1),
}

_OFF_AT_FIRST = (PROMOTE, LOOK)

SWEEP_RATE_WHERE_TIERED = Duration.hours(3)  # so that moved bytes leave directory buckets within a day (docs/adr/0030)


class Schedules(Construct):
    """One rule per function of `RATES` that the stage has.

    The rules of `promote` and `look_at_subscriptions` are off until the first delayed record (timers.py) and the first
    subscription (push.py). A failed run is not retried, because the next one is due anyway (`Releases` tells Lambda so,
    too).
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        functions: Mapping[str, lambda_.IFunction],
    ) -> None:
        super().__init__(scope, construct_id)
        for name, rate in RATES.items():
            if name not in functions:
                continue
            is_rare = name == "sweep" and settings.tiers_zones
            events.Rule(
                self,
                construct_name(name),
                rule_name=f"{settings.name}-{name.replace('_', '-')}",
                description=f"Runs Penstock's function {name}",
                schedule=events.Schedule.rate(SWEEP_RATE_WHERE_TIERED if is_rare else rate),
                enabled=name not in _OFF_AT_FIRST or (name == PROMOTE and settings.timers_always_on),
                targets=[targets.LambdaFunction(functions[name], retry_attempts=0)],
            )
