"""`penstock doctor` against `penstock dev`."""

from penstock.doctor.examination import AWS_ONLY, examine
from penstock.doctor.finding import Verdict
from penstock.doctor.recorder import AwsCalls, RecordingTransport
from tests.sdk.dev.conftest import Server


def test_doctor_finds_the_dev_server_well_and_skips_aws(running: Server) -> None:
    transport = RecordingTransport(running.transport())
    report = examine(transport, None, AwsCalls())
    transport.close()
    assert report.is_well, report.findings
    verdicts = {finding.check: finding.verdict for finding in report.findings}
    assert verdicts["clock"] is Verdict.OK
    assert all(verdicts[check] is Verdict.SKIPPED for check in AWS_ONLY)
