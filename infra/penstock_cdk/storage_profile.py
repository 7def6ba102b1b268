"""The storage profile of a stage: how many zones it has, and which kind of bucket each of them is.

| profile     | zones                                                    | an append waits for               |
|-------------|----------------------------------------------------------|-----------------------------------|
| `express3`  | three directory buckets, each in a zone of its own       | two of three                      |
| `express2`  | two directory buckets, and S3 Standard as the fallback   | both; the fallback where one fails|
| `standard1` | one S3 Standard bucket, which S3 keeps in three zones    | one put                           |
| `local`     | three ordinary buckets, for the emulator                 | two of three                      |

A stage that names no profile gets the one of its region: docs/protocol/zones tells why.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Profile = Literal["express3", "express2", "standard1", "local"]
PROFILES: tuple[Profile, ...] = ("express3", "express2", "standard1", "local")

# S3 user guide, "S3 Express One Zone Availability Zones and Regions" (s3-express-Endpoints.html), read 2026-11-22.
# An AZ id names the same place in every account. A region that is not here has no directory buckets.
EXPRESS_ZONE_IDS: Mapping[str, tuple[str, ...]] = {
    "us-east-1": ("use1-az4", "use1-az5", "use1-az6"),
    "us-east-2": ("use2-az1", "use2-az2"),
    "us-west-2": ("usw2-az1", "usw2-az3", "usw2-az4"),
    "ap-south-1": ("aps1-az1", "aps1-az3"),
    "ap-northeast-1": ("apne1-az1", "apne1-az4"),
    "eu-west-1": ("euw1-az1", "euw1-az3"),
    "eu-north-1": ("eun1-az1", "eun1-az2", "eun1-az3"),
}
_EXPRESS_ZONES: Mapping[Profile, int] = {"express3": 3, "express2": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonePlan:
    """One zone of a stage. `az_id` is the place of its directory bucket, None for an ordinary bucket.

    `is_fallback`: appends put to it only where another zone fails. `is_stand_in`: an ordinary bucket that has the keys
    of a directory bucket.
    """

    name: str
    az_id: str | None = None
    is_fallback: bool = False
    is_stand_in: bool = False


def profile_of_region(region: str | None) -> Profile:
    """Returns `express3` or `express2` where the region has so many zones for directory buckets, else `standard1`."""
    az_ids = EXPRESS_ZONE_IDS.get(region or "", ())
    return "express3" if len(az_ids) >= 3 else "express2" if len(az_ids) == 2 else "standard1"


def zone_plans(profile: Profile, region: str | None, *, has_directory_buckets: bool = True) -> tuple[ZonePlan, ...]:
    """Returns the zones of a profile in a region, in the order of their bits in a ref.

    Without directory buckets, as on the emulator, ordinary buckets stand in for them, with the same keys. Raises
    ValueError if the region has too few zones for the profile.
    """
    if profile == "standard1":
        return (ZonePlan(name="a"),)
    if profile == "local":
        return tuple(ZonePlan(name=name) for name in "abc")
    count = _EXPRESS_ZONES[profile]
    az_ids: tuple[str | None, ...] = (None,) * count
    if has_directory_buckets:
        az_ids = EXPRESS_ZONE_IDS.get(region or "", ())[:count]
        if len(az_ids) < count:
            raise ValueError(
                f"the profile {profile} needs {count} zones with directory buckets, and region {region} has "
                f"{len(az_ids)}: take {profile_of_region(region)}, or another region"
            )
    express = tuple(
        ZonePlan(name=name, az_id=az_id, is_stand_in=az_id is None) for name, az_id in zip("abc", az_ids, strict=False)
    )
    return express if profile == "express3" else (*express, ZonePlan(name="c", is_fallback=True))
