"""Vega-Lite through vl-convert: its JavaScript for a page, and charts as PNG without a browser. Loaded only where drawn."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from vertexrig.studies.charts import Charts

VEGA_LITE = "6.4"
WIDTH, SCALE = 820, 2.0
"""Pixels of a figure, and device pixels of each."""
_LIGHT = {
    "background": "white",
    "view": {"stroke": None},
    "style": {"halo": {"color": "white", "stroke": "white", "strokeWidth": 4, "opacity": 0.85}},
    "range": {"ramp": ["#d3dded", "#5b8bdb", "#0b2a66"]},
    "axis": {"gridColor": "#e1e5ea", "domainColor": "#c4cad2", "tickColor": "#c4cad2"},
}


@cache
def library() -> str:
    """Vega, Vega-Lite and vega-embed as one script that sets `window.vegaEmbed`."""
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE))


def figures(charts: Charts) -> Iterator[tuple[str, bytes]]:
    """Each chart's name, and the chart as PNG on white."""
    import vl_convert

    for chart in charts.all():
        spec = {**chart.spec, "datasets": {name: charts.data[name] for name in chart.data}}
        spec |= {"width": WIDTH, "title": {"text": chart.title, "anchor": "start"}, "config": _LIGHT}
        yield chart.id, vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE, scale=SCALE)
