"""The sources of values: argument, environment, file, service, default."""

from penstock.tuning.environment import CONNECTION
from penstock.tuning.service_configs import TOPIC
from penstock.tuning.setting import Source
from penstock.tuning.values import configured, defaults_of, found, partly_known

FILE = {"PENSTOCK_URL": "http://127.0.0.1:1", "AWS_REGION": "r-file", "AWS_SECRET_ACCESS_KEY": "secret"}


def sources(
    arguments: dict[str, str], environ: dict[str, str], file: dict[str, str]
) -> dict[str, tuple[object, Source]]:
    values = found(CONNECTION, arguments, environ, file)
    return {each.setting.name: (each.value, each.source) for each in values}


def test_argument_goes_before_environment_and_file() -> None:
    known = sources({"PENSTOCK_URL": "https://a"}, {"PENSTOCK_URL": "https://b", "AWS_REGION": "r-env"}, FILE)
    assert known["PENSTOCK_URL"] == ("https://a", Source.ARGUMENT)
    assert known["AWS_REGION"] == ("r-env", Source.ENVIRONMENT)


def test_file_that_gives_the_url_gives_region_and_keys_too() -> None:
    known = sources({}, {"AWS_REGION": "r-env", "PENSTOCK_STACK": "Mine"}, FILE)
    assert known["PENSTOCK_URL"] == ("http://127.0.0.1:1", Source.FILE)
    assert known["AWS_REGION"] == ("r-file", Source.FILE)
    assert known["PENSTOCK_STACK"] == ("Mine", Source.ENVIRONMENT)


def test_file_does_not_count_when_the_environment_gives_the_url() -> None:
    known = sources({}, {"PENSTOCK_URL": "https://b"}, FILE)
    assert known["PENSTOCK_URL"] == ("https://b", Source.ENVIRONMENT)
    assert known["AWS_REGION"] == (None, Source.DEFAULT)


def test_secret_is_never_shown() -> None:
    known = sources({}, {"AWS_ACCESS_KEY_ID": "AKIA"}, FILE)
    assert known["AWS_SECRET_ACCESS_KEY"] == ("(set)", Source.FILE)
    assert known["AWS_ACCESS_KEY_ID"] == ("(set)", Source.ENVIRONMENT)


def test_nothing_given_leaves_the_defaults() -> None:
    known = sources({}, {}, {})
    assert known["PENSTOCK_STACK"] == ("Penstock", Source.DEFAULT)
    assert known["AWS_SECRET_ACCESS_KEY"] == (None, Source.DEFAULT)


def test_value_that_differs_from_its_default_is_of_its_topic() -> None:
    known = {
        each.setting.name: each for each in configured(TOPIC, {"retention_ms": 5, "index_tags": False}, Source.TOPIC)
    }
    assert (known["retention_ms"].value, known["retention_ms"].source) == (5, Source.TOPIC)
    assert (known["index_tags"].value, known["index_tags"].source) == (False, Source.DEFAULT)
    assert known["cleanup_policy"].value == "delete"


def test_value_that_nobody_tells_is_not_known() -> None:
    known = {each.setting.name: each for each in partly_known(TOPIC, {"index_tags": True}, Source.STAGE)}
    assert (known["index_tags"].value, known["index_tags"].source) == (True, Source.STAGE)
    assert (known["retention_ms"].value, known["retention_ms"].source) == (None, Source.UNKNOWN)


def test_defaults_are_the_values_of_options() -> None:
    assert all(each.value == each.setting.default and each.source is Source.DEFAULT for each in defaults_of(TOPIC))
