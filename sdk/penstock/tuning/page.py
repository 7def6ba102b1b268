"""The page docs/reference/settings.md, as the table of settings makes it.

`make settings` writes it, and a test holds that it is what this makes.
"""

from penstock.tuning.sections import SECTIONS
from penstock.tuning.setting import Section, Setting

_HEAD = """# Settings

Here you find every setting, its default and its effect, by the place where you set it.

`penstock config show` prints the same with the values that hold, and tells where each comes from:

| command | what it shows |
|---|---|
| `penstock config show` | all sections; the environment and the file as this machine has them |
| `penstock config show producer topic` | some sections |
| `penstock config show --topic orders` | those of one topic; also `--group`, `--share-group`, `--subscription` |
| `penstock config show --stack Penstock` | the stage as its template tells it |

With `--json` it prints for programs. A stage tells its profile to operators. For its other settings the
command reads the template, which takes the right `cloudformation:GetTemplate`.

`make settings` makes this page from the code. What you cannot change is in [limits](limits.md).
"""


def settings_page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(_section(section) for section in SECTIONS)])


def _section(section: Section) -> str:
    rows = [_row(each) for each in section.settings]
    return "\n".join(
        [f"## {section.title}", "", section.how, "", "| setting | default | effect |", "|---|---|---|", *rows, ""]
    )


def _row(setting: Setting) -> str:
    return f"| `{setting.name}` | {default_text(setting.default)} | {setting.effect.replace('|', chr(92) + '|')} |"


def default_text(value: object) -> str:
    """A default as people read it: none for no value."""
    if value is None or value in ({}, [], ()):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {default_text(each)}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


if __name__ == "__main__":
    print(settings_page(), end="")
