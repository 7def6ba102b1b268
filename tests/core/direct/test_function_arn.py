import pytest

from penstock_core.direct.function_arn import parse_functions_place, qualifier_of

STAGE = "arn:aws:lambda:us-east-1:111122223333:function:penstock-dev"


def test_place_comes_back_as_its_arn() -> None:
    place = parse_functions_place(STAGE)
    assert place.arn == STAGE
    assert (place.region, place.account, place.stage) == ("us-east-1", "111122223333", "penstock-dev")
    assert place.alias_arn("records_produce", "direct-produce") == f"{STAGE}-records-produce:direct-produce"


def test_endpoints_are_those_of_the_partition() -> None:
    china = parse_functions_place("arn:aws-cn:lambda:cn-north-1:111122223333:function:penstock")
    assert china.url_of("sts") == "https://sts.cn-north-1.amazonaws.com.cn"
    assert parse_functions_place(STAGE).url_of("lambda") == "https://lambda.us-east-1.amazonaws.com"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "penstock",
        f"{STAGE}:live",
        f"{STAGE}\n",
        STAGE.replace("us-east-1", "evil.example/?"),
        STAGE.replace("us-east-1", "us-east-1.evil.example"),
        STAGE.replace("111122223333", "1"),
        STAGE.replace("lambda", "sts"),
        STAGE.replace("penstock-dev", "Penstock_dev"),
        STAGE.replace("arn:aws", "arn:aws.evil"),
    ],
)
def test_text_that_names_no_stage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no ARN of a stage"):
        parse_functions_place(text)


@pytest.mark.parametrize(
    ("suffix", "qualifier"), [("", ""), (":live", "live"), (":$LATEST", "$LATEST"), (":7", "7"), (":a:b", "")]
)
def test_qualifier_is_what_follows_the_functions_name(suffix: str, qualifier: str) -> None:
    assert qualifier_of(STAGE + suffix) == qualifier
