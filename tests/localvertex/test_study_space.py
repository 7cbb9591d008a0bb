"""The search space: scales, conditions, the grid's order, the trainer's arguments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tools import calls
from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.checks.model import Context
from vertexrig.checks.parameters import RULES
from vertexrig.errors import ConfigError
from vertexrig.spec.parameters import Domain
from vertexrig.spec.space import Space


def space(*specs: dict) -> Space:
    return Space(specs)


LR = {"parameterId": "lr", "doubleValueSpec": {"minValue": 0.001, "maxValue": 1.0}, "scaleType": "UNIT_LOG_SCALE"}
UNITS = {"parameterId": "units", "discreteValueSpec": {"values": [64, 128, 512]}}
OPTIMIZER = {
    "parameterId": "optimizer",
    "categoricalValueSpec": {"values": ["sgd", "adam"]},
    "conditionalParameterSpecs": [
        {
            "parentCategoricalValues": {"values": ["sgd"]},
            "parameterSpec": {"parameterId": "momentum", "discreteValueSpec": {"values": [0.0, 0.9]}},
        }
    ],
}


def test_command_line_sends_what_vertex_sends() -> None:
    """Values stand after =, discrete ones as floats, inactive conditional ones not at all."""
    given_ = [
        {"parameterId": "lr", "value": 0.01},
        {"parameterId": "units", "value": 128},
        {"parameterId": "optimizer", "value": "adam"},
    ]
    assert space(LR, UNITS, OPTIMIZER).command_line(given_) == ["--lr=0.01", "--units=128.0", "--optimizer=adam"]


def test_command_line_refuses_values_from_another_space() -> None:
    """A value that is not in the space is an error that shows it."""
    with pytest.raises(ConfigError, match="'sdg'"):
        space(OPTIMIZER).command_line([{"parameterId": "optimizer", "value": "sdg"}])


def test_grid_order_is_an_odometer() -> None:
    """The last parameter changes fastest, and a conditional one comes right after its parent."""
    both = space(OPTIMIZER, UNITS)
    assert both.size == 9
    rows = [[row["value"] for row in both.combination(i)] for i in range(9)]
    assert rows == [
        ["sgd", 0.0, 64.0], ["sgd", 0.0, 128.0], ["sgd", 0.0, 512.0],
        ["sgd", 0.9, 64.0], ["sgd", 0.9, 128.0], ["sgd", 0.9, 512.0],
        ["adam", 64.0], ["adam", 128.0], ["adam", 512.0],
    ]  # fmt: skip


def test_grid_of_a_huge_integer_with_a_condition_is_not_enumerated() -> None:
    """The size and any combination of 2**40 values come at once."""
    huge = space(
        {
            "parameterId": "n",
            "integerValueSpec": {"minValue": 0, "maxValue": 2**40 - 1},
            "conditionalParameterSpecs": [{"parentIntValues": {"values": [5]}, "parameterSpec": UNITS}],
        }
    )
    assert huge.size == 2**40 + 2
    assert [row["value"] for row in huge.combination(6)] == [5, 128.0]
    assert [row["value"] for row in huge.combination(2**40 + 1)] == [2**40 - 1]


@pytest.mark.parametrize("scale", ["", "UNIT_LINEAR_SCALE", "UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE"])
def test_scales_go_there_and_back(scale: str) -> None:
    """from_unit undoes to_unit, and the ends of the scale are the bounds."""
    dimension = Domain("DOUBLE", scale, 0.001, 10.0)
    assert dimension.from_unit(0.0) == pytest.approx(0.001) and dimension.from_unit(1.0) == pytest.approx(10.0)
    for unit in (0.1, 0.5, 0.9):
        assert dimension.to_unit(dimension.from_unit(unit)) == pytest.approx(unit)


def test_log_scales_spread_the_right_end() -> None:
    """The log scale spends half its length below the geometric mean, the reverse one mirrors that."""
    log = Domain("DOUBLE", "UNIT_LOG_SCALE", 1.0, 100.0)
    reverse = Domain("DOUBLE", "UNIT_REVERSE_LOG_SCALE", 1.0, 100.0)
    assert log.from_unit(0.5) == pytest.approx(10.0)
    assert reverse.from_unit(0.5) == pytest.approx(91.0)


@given(
    st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 1),
    st.sampled_from(["", "UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE"]),
)  # fmt: skip
def test_any_range_of_floats_holds_its_values(one: float, other: float, unit: float, scale: str) -> None:
    """Even ranges whose width overflows give finite values within the bounds."""
    low, high = sorted((one, other))
    if scale and low <= 0:
        low, high = 1e-300, max(high, 1.0)
    dimension = Domain("DOUBLE", scale, low, high)
    value = dimension.from_unit(unit)
    assert low <= value <= high
    assert 0.0 <= dimension.to_unit(value) <= 1.0


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"parameterId": "x"}, "exactly one of"),
        ({"parameterId": "x", **{k: v for k, v in (*LR.items(), *UNITS.items()) if k.endswith("Spec")}}, "2 are there"),
        ({"discreteValueSpec": {"values": [1]}}, "parameterId is missing"),
        ({"parameterId": "x", "discreteValueSpec": {}}, "values is empty"),
        ({"parameterId": "x", "doubleValueSpec": {"minValue": 2, "maxValue": 1}}, "is above"),
        ({"parameterId": "x", "doubleValueSpec": {}}, "needs minValue and maxValue"),
        ({**LR, "doubleValueSpec": {"minValue": 0, "maxValue": 1}}, "needs a range above 0"),
        ({**LR, "conditionalParameterSpecs": [{"parentIntValues": {"values": [1]}, "parameterSpec": UNITS}]}, "no conditional"),
        ({**UNITS, "conditionalParameterSpecs": [{"parentIntValues": {"values": [64]}, "parameterSpec": LR}]}, "parentDiscreteValues"),
    ],
)  # fmt: skip
def test_a_parameter_that_cannot_be_searched_is_named(spec: dict, says: str) -> None:
    """The error says where and which rule."""
    with pytest.raises(ConfigError, match=says) as caught:
        Space([spec])
    assert "studySpec.parameters[0]" in str(caught.value)


def child(values: list[str], name: str) -> dict:
    return {"parentCategoricalValues": {"values": values}, "parameterSpec": {**UNITS, "parameterId": name}}


def test_one_id_may_stand_under_conditions_that_exclude_each_other() -> None:
    """Two children of one name are fine for different parent values, and refused when both can be active."""
    parent = {"parameterId": "p", "categoricalValueSpec": {"values": ["a", "b"]}}
    Space([{**parent, "conditionalParameterSpecs": [child(["a"], "x"), child(["b"], "x")]}])
    for wrong in ([child(["a"], "x"), child(["a", "b"], "x")], [child(["a"], "p")]):
        with pytest.raises(ConfigError, match="active twice"):
            Space([{**parent, "conditionalParameterSpecs": wrong}])
    with pytest.raises(ConfigError, match="'lr' can be active twice"):
        Space([LR, LR])


@pytest.mark.parametrize("same", [False, True])
def test_the_work_grows_with_the_number_of_parameters(same: bool) -> None:
    """Twice as many parameters cost about twice as many calls to check and to search, not four times as many."""

    def study(count: int) -> dict:
        flat = [{**UNITS, "parameterId": f"p{i}"} for i in range(count)]
        values = [str(i) for i in range(count)]
        branches = [child([value], "x") for value in values]  # one id under conditions that exclude each other
        parent = {"parameterId": "p", "categoricalValueSpec": {"values": values}}
        parameters = [{**parent, "conditionalParameterSpecs": branches}] if same else flat
        return {"studySpec": {"parameters": parameters, "algorithm": "GRID_SEARCH", "metrics": [{"metricId": "a"}]}}

    def read(data: dict) -> None:
        document = spec.from_data(data, kind="HyperparameterTuningJob")
        found = [problem for rule in RULES for problem in rule.run(document, Context(load()))]
        assert not [problem for problem in found if problem.path.endswith("parameterId")]
        Space((document.study or {})["parameters"])

    read(study(2))
    few, many = (calls(lambda count=count: read(study(count))) for count in (200, 400))
    assert many < 2.2 * few
