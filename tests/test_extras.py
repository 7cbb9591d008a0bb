"""What the base install does not bring: one table says which extra does, and every verb says so in one line."""

from __future__ import annotations

import ast
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.tools import REPOSITORY
from vertexrig.cli import VERBS
from vertexrig.extras import PARTS, MissingExtraError, missing, need

SETUP = (REPOSITORY / "setup.py").read_text(encoding="utf-8")
BASE_MODULES = {"click", "jinja2", "markupsafe", "yaml", "setuptools", "google.protobuf", "google.cloud.aiplatform_v1"}
"""Modules of install_requires and of what it brings with certainty: MarkupSafe is Jinja2's, protobuf the messages'."""
BROUGHT_ALONG = {"google-api-core": "google-cloud-scheduler", "anyio": "starlette"}


def third_party() -> dict[str, str]:
    """Every module outside the standard library and ours that vertexrig/ imports anywhere, with its first file."""
    found: dict[str, str] = {}
    for file in sorted((REPOSITORY / "vertexrig").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
                if node.module in ("google", "google.cloud"):  # namespaces: what is meant is below them
                    names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                top = name.split(".")[0]
                if top not in sys.stdlib_module_names and top != "vertexrig" and name not in ("google", "google.cloud"):
                    found.setdefault(name, str(file.relative_to(REPOSITORY)))
    return found


def below(module: str, tops: object) -> bool:
    return any(module == top or module.startswith(f"{top}.") for top in tops)  # type: ignore[attr-defined]


def extra_of(name: str) -> str:
    """The text of an extra's list in setup.py, with the lists it takes in."""
    text = re.search(rf"^{name.upper()} = \[(.*?)\]", SETUP, re.MULTILINE | re.DOTALL)
    assert text, name
    return text[1] + "".join(extra_of(other.lower()) for other in re.findall(r"\*([A-Z]+)", text[1]))


def test_every_third_party_import_is_in_the_base_or_in_the_table() -> None:
    """No module of vertexrig/ imports something that neither install_requires nor the table names."""
    modules = third_party()
    assert len(modules) > 10
    assert {name: file for name, file in modules.items() if not below(name, {*BASE_MODULES, *PARTS})} == {}


def test_every_row_of_the_table_is_imported_or_run_and_its_extra_installs_it() -> None:
    """A row names a module that is needed, the distribution that has it, and an extra whose list holds that."""
    modules = third_party()
    for module, part in PARTS.items():
        assert any(below(name, [module]) for name in modules) or module == "functions_framework", module
        known = packages_distributions().get(module.split(".")[0], [])
        assert part.distribution.replace("-", "_") in {name.lower().replace("-", "_") for name in known}, (
            module,
            known,
        )
        assert f'"{BROUGHT_ALONG.get(part.distribution, part.distribution)}' in extra_of(part.extra), module


@pytest.mark.parametrize(
    ("name", "extra"),
    [("google.auth", "submit"), ("starlette.routing", "local"), ("optuna", "local"), ("no_such_module", None)],
)
def test_a_failed_import_names_its_extra(name: str, extra: str | None) -> None:
    """The error of an import, also of a module below a row's, becomes the line with the extra; others stay errors."""
    found = missing(ModuleNotFoundError(f"No module named {name!r}", name=name))
    assert (found is None) == (extra is None)
    if extra is not None:
        assert f'pip install "vertexrig[{extra}]"' in str(found) and found is not None and found.exit_code == 2


def test_need_raises_before_a_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process of its own would miss is told by the process that starts it, with every extra that is lacking."""
    monkeypatch.setitem(sys.modules, "functions_framework", None)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r'pip install "vertexrig\[local,trigger\]"'):
        need("functions_framework", "optuna", "click")


def test_the_wheels_test_types_every_verb() -> None:
    """The table of command lines in test_wheel.py leaves no verb out."""
    from tests.test_wheel import LINES

    assert {line.split()[0] for line in LINES} == set(VERBS)
    assert Path(REPOSITORY / "vertexrig" / "extras.py").is_file()
