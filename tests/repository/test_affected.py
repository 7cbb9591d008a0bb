"""Which changes need the tests of the local Vertex."""

from tools.affected import affects

NEEDED = ("localvertex/http.py", "vertexrig/spec/trial.py", "vertexrig/catalog/data/machines.json", "constraints.txt")
OTHERS = ("vertexrig/bring/fix.py", "docs/local.md", "tests/vertexrig/checks/cases.py")


def test_the_local_vertex_is_tested_where_it_or_what_it_imports_changed() -> None:
    """A change of the local Vertex, of what it imports or of its data needs its tests; no other one does."""
    assert [file for file in (*NEEDED, "tests/support/tools.py", *OTHERS) if not affects([file])] == [*OTHERS]
