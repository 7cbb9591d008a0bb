"""What a mistyped name is taken for, and what is only asked about."""

from __future__ import annotations

import pytest

from vertexrig.catalog import load
from vertexrig.errors import did_you_mean, meant, nearest

ACCELERATORS = [name for name, row in load().accelerators.items() if row.api_enum]
FLAGS = ["--learning_rate", "--batch_size", "--epochs", "--strategy"]


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("NVIDIA_TESLA_L4", "NVIDIA_L4"),
        ("nvidia-l4", "NVIDIA_L4"),
        ("nvidia-tesla-p4", "NVIDIA_TESLA_P4"),
        ("NVIDIA_T4", "NVIDIA_TESLA_T4"),
        ("T4", "NVIDIA_TESLA_T4"),
        ("NVIDIA_H100", "NVIDIA_H100_80GB"),
        ("NVIDIA_TESLA_A100_80GB", "NVIDIA_A100_80GB"),
        ("NVIDIA_TELSA_V100", "NVIDIA_TESLA_V100"),
        ("NVIDIA_A100", None),  # of 40 or 80 GB
        ("NVIDIA_TESLA_T44", None),
        ("NVIDIA_L40", None),
        ("", None),
        ("?????", None),
    ],
)
def test_an_accelerator_is_known_by_its_number(written: str, wanted: str | None) -> None:
    """A name leads to the accelerator with its number and its words, and to none where two would fit."""
    assert meant(written, ACCELERATORS) == wanted


@pytest.mark.parametrize(
    ("written", "choices", "likely", "sure"),
    [
        ("epoks", FLAGS, "--epochs", None),
        ("learning-rate", FLAGS, "--learning_rate", "--learning_rate"),
        ("us-centrl1", ["us-central1", "us-east1", "us-west1"], "us-central1", "us-central1"),
        ("europe-west", ["europe-west1", "europe-west4"], None, None),
        ("n1-standard-2", ["n1-standard-32", "n1-standard-16"], None, None),
        ("n1-standart-8", ["n1-standard-8", "n1-highmem-8", "n2-standard-8"], "n1-standard-8", "n1-standard-8"),
        ("x", [], None, None),
    ],
)
def test_a_fix_needs_more_likeness_than_a_question(
    written: str, choices: list[str], likely: str | None, sure: str | None
) -> None:
    """`nearest` is for a question, `meant` for a fix; numbers are never changed, and a tie is no answer."""
    assert (nearest(written, choices), meant(written, choices)) == (likely, sure)


def test_a_question_lists_the_choices_where_none_is_near() -> None:
    """Without a near choice the message lists them."""
    assert did_you_mean("NVIDIA_TESLA_L4", ["NVIDIA_L4", "NVIDIA_TESLA_T4"]) == "Did you mean 'NVIDIA_L4'?"
    assert did_you_mean("europe-west", ["europe-west1", "europe-west4"]) == "Choices: europe-west1, europe-west4."
