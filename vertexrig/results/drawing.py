"""Charts in Vega-Lite, and vl-convert's JavaScript for a page. Loaded only where drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from vertexrig.text import clean

# Named here, since vl-convert has several and takes its newest by default: charts stay as they were tested.
VEGA_LITE = "6.4"
Spec = dict[str, Any]


@dataclass(frozen=True)
class Chart:
    """One chart.

    Args:
        id: Unique in the page: letters, digits and dashes.
        title: What it shows, for its heading or its alternative text.
        spec: In Vega-Lite, without its data.
        note: What a reader should know, "" if nothing.
        least_width: Pixels below which it scrolls sideways.
    """

    id: str
    title: str
    spec: Spec
    note: str = ""
    least_width: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", clean(self.title))

    @property
    def data(self) -> list[str]:
        """The data sets that it names."""
        parts = (self.spec, *self.spec.get("layer", ()))
        return sorted({part["data"]["name"] for part in parts if "name" in part.get("data", {})})


@dataclass(frozen=True)
class Charts:
    """The charts of a study by section, and their data.

    Args:
        sections: Section id to its charts.
        data: Data sets by the names that the charts use.
    """

    sections: Mapping[str, Sequence[Chart]]
    data: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)

    def all(self) -> list[Chart]:
        return [chart for charts in self.sections.values() for chart in charts]

    def for_page(self) -> dict[str, Any]:
        """Return what page/charts.js draws: the charts of each section in their order, and the data sets that they name."""
        sections = [
            {"id": name, "charts": [{**vars(chart), "data": chart.data} for chart in charts]}
            for name, charts in self.sections.items()
        ]
        return {"sections": sections, "data": dict(self.data)}


@cache
def library() -> str:
    """Vega, Vega-Lite and vega-embed as one script that sets `window.vegaEmbed`."""
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE))
