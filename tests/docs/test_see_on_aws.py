"""The page names functions that there are: ADR 81 merged half of them, and the page named them on."""

import re

from tests.docs.pages import DOCS, ROOT

TEXT = (DOCS / "contributing" / "see-on-aws.md").read_text()
_NAMED = re.compile(r"(?:--function-name |/aws/lambda/|FunctionName,Value=)\$STAGE-([a-z-]+)")


def test_page_names_functions_that_there_are() -> None:
    named = set(_NAMED.findall(TEXT))
    assert len(named) > 8
    assert [each for each in named if not (ROOT / "functions" / "penstock_handlers" / f"{each}.py").is_file()] == []
