"""The counts of a small checkout, and the exit code that follows from them."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from tools.passages import Kind
from tools.prose import main, report, scopes


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    return tmp_path


def _write(checkout: Path, name: str, text: str) -> None:
    path = checkout / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("path", "kind", "expected"),
    [
        ("README.md", Kind.TEXT, ["docs but ADRs", "docs, all", "total"]),
        ("docs/adr/0001-pages.md", Kind.TEXT, ["ADRs", "docs, all", "total"]),
        (
            "functions/penstock_core/log/ref.py",
            Kind.DOCSTRING,
            ["docstrings: penstock_core", "docstrings, all", "total"],
        ),
        ("sdk/penstock/prices.py", Kind.DOCSTRING, ["docstrings: penstock", "docstrings, all", "total"]),
        ("glue_jobs/sweep.py", Kind.DOCSTRING, ["docstrings: glue_jobs", "docstrings, all", "total"]),
        ("app.py", Kind.DOCSTRING, ["docstrings: app.py", "docstrings, all", "total"]),
        ("tests/core/test_ref.py", Kind.DOCSTRING, ["docstrings: tests", "total"]),
        ("tests/core/test_ref.py", Kind.COMMENT, ["comments: tests", "total"]),
        ("infra/penstock_cdk/penstock.py", Kind.COMMENT, ["comments", "total"]),
    ],
)
def test_sentence_counts_in_its_scope_in_the_sum_and_in_the_total(path: str, kind: Kind, expected: list[str]) -> None:
    assert list(scopes(Path(path), kind)) == expected


def test_report_counts_words_sentences_and_findings(checkout: Path) -> None:
    _write(checkout, "docs/page.md", "What is left is sent later. The sender sends it.\n")
    _write(checkout, "infra/penstock_cdk/penstock.py", f'"""The stack {"and " * 40}more."""\n')
    result = report(checkout)
    docs, docstrings = result.scopes["docs, all"], result.scopes["docstrings, all"]
    assert (docs.words, docs.sentences, docs.headless, docs.long) == (10, 2, 1, 0)
    assert (docstrings.sentences, docstrings.headless, docstrings.long) == (1, 0, 1)
    assert docs.headless_per_1000_words == 100
    assert docstrings.long_percent == 100
    assert [str(finding).split(": ")[:2] for finding in result.findings] == [
        ["docs/page.md:1", "headless"],
        ["infra/penstock_cdk/penstock.py:1", "43 words"],
    ]


@pytest.mark.parametrize(
    ("name", "headless", "plain", "passes"),
    [
        ("README.md", 1, 400, True),
        ("README.md", 1, 100, False),
        ("docs/adr/0001-pages.md", 1, 100, False),
        ("tests/test_stack.py", 5, 0, True),
        ("sdk/penstock/prices.py", 1, 100, False),
    ],
)
def test_check_fails_when_docs_or_docstrings_exceed_a_bound(
    checkout: Path, name: str, headless: int, plain: int, passes: bool
) -> None:
    text = "What is left is sent. " * headless + "One sender sends. " * plain
    _write(checkout, name, text if name.endswith(".md") else f'"""{text}"""\n')
    assert CliRunner().invoke(main, ["--root", str(checkout)]).exit_code == (0 if passes else 1)


def test_check_fails_when_too_many_sentences_are_long(checkout: Path) -> None:
    _write(checkout, "README.md", "The sender sends it. " * 18 + "The sender " + "sends " * 40 + "it.")
    assert CliRunner().invoke(main, ["--root", str(checkout)]).exit_code == 1
    _write(checkout, "README.md", "The sender sends it. " * 19 + "The sender " + "sends " * 40 + "it.")
    assert CliRunner().invoke(main, ["--root", str(checkout)]).exit_code == 0


@pytest.mark.parametrize("name", ["README.md", "sdk/penstock/prices.py", "tests/test_stack.py"])
def test_check_fails_for_a_foreign_word_and_prints_its_sentence(checkout: Path, name: str) -> None:
    text = "The sender sends it. " * 99 + "The retry stands beside the send."
    _write(checkout, name, text if name.endswith(".md") else f'"""{text}"""\n')
    answer = CliRunner().invoke(main, ["--root", str(checkout)])
    assert answer.exit_code == 1
    assert f'{name}:1: "stands", "beside": The retry stands beside the send.' in answer.output


def test_json_holds_the_counts_of_each_scope(checkout: Path) -> None:
    _write(checkout, "README.md", "Nobody knows. The reader does.\n")
    _write(checkout, "other/page.md", "Left out.\n")
    answer = CliRunner().invoke(main, ["--root", str(checkout), "--json", "README.md"])
    counts = {"words": 5, "sentences": 2, "headless": 1, "headless_per_1000_words": 200.0, "long": 0, "long_percent": 0}
    assert json.loads(answer.output) == {"docs but ADRs": counts, "docs, all": counts, "total": counts}


def test_files_that_git_ignores_are_left_out(checkout: Path) -> None:
    _write(checkout, ".gitignore", "build/\n")
    _write(checkout, "build/page.md", "Nobody reads this.\n")
    _write(checkout, "page.md", "You read this.\n")
    assert report(checkout).scopes["total"].sentences == 1
