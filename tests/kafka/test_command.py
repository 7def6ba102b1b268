import pytest
from click.testing import CliRunner

from penstock_kafka.command import kafka


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "0.0.0.0:9092"], "clients on other hosts would have this host's rights"),
        (["--listen", "9092"], "give HOST:PORT"),
        (["--listen", "localhost:99999"], "give HOST:PORT"),
        (["--advertise", "host"], "give HOST:PORT"),
        (["--metrics", "host"], "give HOST:PORT"),
        (["--tls-cert", "x"], "give --tls-cert and --tls-key together"),
        (["--listen", "0.0.0.0:9092", "--tls-cert", "x", "--tls-key", "x"], "and --users"),
    ],
)
def test_kafka_refuses_an_address_that_it_cannot_serve(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(kafka, arguments)
    assert done.exit_code == 2
    assert said in done.output
