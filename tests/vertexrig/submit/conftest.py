"""What tests of submitting take: a cloud in memory, and a submitter on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import clouds
from tests.support.submitting import Make, maker


@pytest.fixture
def here() -> clouds.MemoryCloud:
    return clouds.MemoryCloud()


@pytest.fixture
def make(here: clouds.MemoryCloud, tmp_path: Path) -> Make:
    return maker(here, tmp_path)
