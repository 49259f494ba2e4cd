"""Figures drawn by plotly in the reader's browser, and plotly's script, written into the page once.

The page's policy allows two scripts by digest: plotly's and ours, `DRAW`. A study's content is only data to them.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from autotune.errors import UsageError
from autotune.model.study_view import PlotlyFigure
from autotune.report.svg import element

DRAW = """
const ink = getComputedStyle(document.body).color, clear = "rgba(0,0,0,0)";
for (const place of document.querySelectorAll("figure.plotly")) {
  const figure = JSON.parse(place.querySelector("script").textContent);
  Object.assign(figure.layout, {paper_bgcolor: clear, plot_bgcolor: clear, font: {color: ink}, autosize: true});
  delete figure.layout.width;
  Plotly.newPlot(place.appendChild(document.createElement("div")), figure.data, figure.layout, {responsive: true});
}
"""


def plotly_script() -> str:
    """The source of plotly.js, 4.6 MB.

    Raises:
        UsageError: When plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        hint = "Install it: pip install plotly; or leave out --interactive."
        raise UsageError("Interactive figures need plotly, which is not installed.", hint) from error
    # A browser reads every line ending as one character, and digests the result.
    source: str = get_plotlyjs()
    return source.replace("\r\n", "\n").replace("\r", "\n")


def policy(scripts: Sequence[str]) -> str:
    """The part of a page's policy for scripts: no scripts but these."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    sources = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"script-src {sources}; img-src data: blob:"


def interactive_figures(figures: Sequence[PlotlyFigure], scripts: Sequence[str]) -> Iterator[Element]:
    """A section with the figures, and the scripts for drawing."""
    yield element("h2", "Optuna's own figures")
    words = "Without cap and finals: a trial over the cap has a rate of 0, a trial stopped early its upper bound."
    yield element("p", words, class_="caption")
    yield element("div", *map(_figure, figures), class_="pictures")
    yield from map(_script, scripts)


def _figure(figure: PlotlyFigure) -> Element:
    values = Element("script", {"type": "application/json"})
    # The text of a script is not escaped; the end of an element inside would end the script.
    values.text = json.dumps(figure.values, ensure_ascii=True).replace("<", "\\u003c")
    return element("figure", element("h3", figure.title), values, class_="plotly")


def _script(source: str) -> Element:
    node = Element("script")
    node.text = source
    return node
