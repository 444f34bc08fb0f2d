"""The settings' reference covers every setting, with examples that are legal."""

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from generator.setting_groups import GROUPS, Entry, Group
from generator.settings import MODEL, SERVER, example

from ringbatch.engine.config import chains
from ringbatch.engine.config.definitions import Setting
from ringbatch.engine.config.document import ALIASES, conclude
from ringbatch.shm.chain import MAX_STEPS

PAGE = (Path(__file__).parents[2] / "docs/reference/settings.md").read_text()
CHAINS = PAGE.partition("\n## Chains\n")[2]
ENTRIES = [entry for group in GROUPS for entry in group.entries]
BOTH = SERVER | MODEL


def test_every_setting_is_in_one_group() -> None:
    assert Counter(entry.key for entry in ENTRIES) == Counter([*SERVER, *MODEL])


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.title)
def test_a_group_has_settings_of_one_section(group: Group) -> None:
    assert len({entry.key in SERVER for entry in group.entries}) == 1


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.key)
def test_an_example_takes_effect(entry: Entry, tmp_path: Path) -> None:
    (tmp_path / "minilm").mkdir()
    document = {"models": {"m": {"path": "model.py"}}} | tomllib.loads(example(entry))
    config = conclude(document, source="", base=tmp_path, is_file=lambda _: True)
    assert config.notices == ()
    section = config.server if entry.key in SERVER else config.models[0]
    assert getattr(section, entry.key) != BOTH[entry.key].default


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.key)
def test_related_settings_exist(entry: Entry) -> None:
    assert {*entry.see} <= {*BOTH} - {entry.key}


@pytest.mark.parametrize("setting", BOTH.values(), ids=lambda setting: setting.key)
def test_clauses_are_short(setting: Setting) -> None:
    clauses = re.split(r"[.:,] ", setting.sentence)
    assert [clause for clause in clauses if len(clause.split()) > 25] == []


def test_every_other_spelling_of_a_key_is_named() -> None:
    introduction = PAGE.partition("\n## ")[0]
    assert [alias for alias in ALIASES if f"`{alias}`" not in introduction] == []


def test_the_keys_of_chains_are_those_of_the_code() -> None:
    keys = re.findall(r"^\| `(\w+)` \|", CHAINS, re.MULTILINE)
    assert keys == [*chains._KEYS, *chains._STEP_KEYS]
    assert f"at most {MAX_STEPS}" in CHAINS
