"""Which changes need the tests of the local Vertex."""

import pytest

from tools.affected import affects


@pytest.mark.parametrize(
    ("file", "needed"),
    [
        ("localvertex/http.py", True),
        ("vertexrig/spec/trial.py", True),
        ("vertexrig/catalog/data/machines.json", True),
        ("tests/support/tools.py", True),
        ("constraints.txt", True),
        ("vertexrig/bring/fix.py", False),
        ("docs/local.md", False),
        ("tests/vertexrig/checks/cases.py", False),
    ],
)
def test_the_local_vertex_is_tested_where_it_or_what_it_imports_changed(file: str, needed: bool) -> None:
    """A change of the local Vertex, of what it imports or of its data needs its tests; no other one does."""
    assert affects([file]) is needed
