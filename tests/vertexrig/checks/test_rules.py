"""Every rule of every table: it finds what it is for, and accepts what is right beside it."""

from __future__ import annotations

import pytest

from tests.vertexrig.checks import defect_cases, pytorch_cases, strategy_cases, study_cases, trainer_cases
from tests.vertexrig.checks.cases import Case, must_accept, must_find, names
from tests.vertexrig.checks.job_cases import CASES as JOB_CASES
from tests.vertexrig.checks.process_cases import PROCESSES, READING
from vertexrig import checks

ELSEWHERE = {
    "image-lock", "image-python", "args-replace-cmd", "args-repeat-entrypoint", "command-words", "trainer-unused",
    "keras-3-saving", "workers-save-together", "requirements",
}  # fmt: skip
"""Rules with cases of their own: those that need a Dockerfile, a built image or requirements in `tests/vertexrig/package`."""
# By topic.
TABLES = {
    **JOB_CASES,
    "study": study_cases.CASES,
    "trainer": trainer_cases.CASES,
    "commands": trainer_cases.COMMANDS,
    "defects": defect_cases.CASES,
    "strategy": strategy_cases.CASES,
    "pytorch": pytorch_cases.CASES,
    "processes": PROCESSES,
    "reading": READING,
}
# Each with whether nothing else may be found: the trainers of the other tables are too small to fit their jobs.
ALL = [(case, topic in JOB_CASES) for topic, cases in TABLES.items() for case in cases]
IDS = names(case for case, _ in ALL)


@pytest.mark.parametrize(("case", "alone"), ALL, ids=IDS)
def test_a_rule_finds_what_breaks_it_and_nothing_else(case: Case, alone: bool) -> None:
    """The failing edits give its finding with its place in the file and a source, and of a job's rules no other. The passing edits,
    or the base itself, give nothing of the rule, and of a job's rules no error.
    """
    must_find(case, alone=alone)
    must_accept(case, alone=alone)


def test_every_rule_has_a_case() -> None:
    """No rule is without a failing and a passing case."""
    rules = {rule.id for rule in checks.rules()}
    assert rules >= ELSEWHERE and {case.rule for cases in TABLES.values() for case in cases} == rules - ELSEWHERE
