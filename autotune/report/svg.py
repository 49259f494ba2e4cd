"""Scales, axes and marks of a picture, as elements of SVG. Pure; the writer of the page escapes the texts.

Colours are classes of the page's style sheet, so the same picture serves light and dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from xml.etree.ElementTree import Element

from autotune.report.words import clean

WIDTH, HEIGHT = 460.0, 280.0
LEFT, RIGHT, TOP, BOTTOM = 68.0, 12.0, 12.0, 42.0
NUM_TICKS = 5
NICE = (1.0, 2.0, 2.5, 5.0, 10.0)
LETTER_WIDTH = 6.3
"""Average width of a letter in a label."""

Point = tuple[float, float]


def element(tag: str, *children: Element | str | None, **attributes: object) -> Element:
    """An element; texts among the children are cleaned, and None is left out.

    Args:
        tag: Name of the element.
        children: Elements and texts, in order.
        attributes: `class_` becomes `class`, and further `_` become `-`; numbers are rounded to tenths of a unit. Empty
            attributes are left out.
    """
    named = {name.rstrip("_").replace("_", "-"): _attribute(value) for name, value in attributes.items() if value != ""}
    node = Element(tag, named)
    for child in children:
        if isinstance(child, Element):
            node.append(child)
        elif child is not None:
            _append_text(node, clean(child))
    return node


def _attribute(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else clean(str(value))


def _append_text(node: Element, text: str) -> None:
    if len(node):
        node[-1].tail = (node[-1].tail or "") + text
    else:
        node.text = (node.text or "") + text


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Positions of values along one axis, evenly from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The position of the value; a scale of a single value puts the value in the middle."""
        span = self.high - self.low
        share = (value - self.low) / span if span > 0 else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self, unit: float = 1.0) -> list[float]:
        """About `NUM_TICKS` round values within the scale; multiples of `unit` are round."""
        span = (self.high - self.low) / unit
        if span <= 0:
            return [self.low]
        power = 10.0 ** math.floor(math.log10(span / NUM_TICKS))
        step = power * next(nice for nice in NICE if span / NUM_TICKS <= nice * power * 1.0001)
        first, last = math.ceil(self.low / unit / step - 1e-9), math.floor(self.high / unit / step + 1e-9)
        return [index * step * unit for index in range(first, last + 1)]


@dataclass(slots=True)
class Chart:
    """A picture with two axes under construction: the frame first, then marks on top.

    Args:
        title: Description for people who cannot see the picture.
        x: Values from left to right, `low` to `high`.
        y: Values from bottom to top.
    """

    title: str
    x: tuple[float, float]
    y: tuple[float, float]
    width: float = WIDTH
    height: float = HEIGHT
    root: Element = field(init=False)
    across: Scale = field(init=False)
    up: Scale = field(init=False)

    def __post_init__(self) -> None:
        """Lays out the scales within the margins."""
        self.root = canvas(self.title, self.width, self.height)
        self.across = Scale(low=self.x[0], high=self.x[1], start=LEFT, end=self.width - RIGHT)
        self.up = Scale(low=self.y[0], high=self.y[1], start=self.height - BOTTOM, end=TOP)

    def y_axis(self, label: str, words: Callable[[float], str], *, unit: float = 1.0) -> None:
        """Draws grid lines with their values."""
        for value in self.up.ticks(unit):
            height = self.up(value)
            self.add("line", x1=LEFT, x2=self.width - RIGHT, y1=height, y2=height, class_="grid")
            self.text(LEFT - 6, height + 4, words(value), anchor="end")
        middle = (TOP + self.height - BOTTOM) / 2
        node = self.text(12.0, middle, label, anchor="middle", class_="axis")
        node.set("transform", f"rotate(-90 12 {middle:.1f})")

    def x_axis(self, label: str, words: Callable[[float], str], *, unit: float = 1.0) -> None:
        """Writes values along the lower edge."""
        self.x_ticks(label, [(value, words(value)) for value in self.across.ticks(unit)])

    def x_ticks(self, label: str, ticks: Sequence[tuple[float, str]]) -> None:
        """Writes given values along the lower edge, leaving out values that would overlap."""
        floor = self.height - BOTTOM
        self.add("line", x1=LEFT, x2=self.width - RIGHT, y1=floor, y2=floor, class_="frame")
        free_from = -math.inf
        for value, words in ticks:
            half = len(words) * LETTER_WIDTH / 2
            place = min(self.across(value), self.width - half - 1)
            if place - half < free_from:
                continue
            free_from = place + half + LETTER_WIDTH
            self.text(place, floor + 16, words, anchor="middle")
        self.text((LEFT + self.width - RIGHT) / 2, self.height - 6, label, anchor="middle", class_="axis")

    def mark(self, x: float, y: float, kind: str, tip: str, *, is_best: bool = False) -> None:
        """Draws one trial: shape and colour show the outcome, `tip` the rest."""
        node = glyph(kind, self.across(x), self.up(y))
        node.append(element("title", tip))
        if is_best:
            self.add("circle", cx=self.across(x), cy=self.up(y), r=9.0, class_="ring")
        self.root.append(node)

    def line(self, points: Iterable[Point], class_: str) -> None:
        """Draws a line through the points."""
        places = " ".join(f"{self.across(x):.1f},{self.up(y):.1f}" for x, y in points)
        if places:
            self.add("polyline", points=places, class_=class_)

    def steps(self, points: Sequence[Point], class_: str) -> None:
        """Draws a line from point to point, first across and then up."""
        corners = list(points[:1])
        for (_, height), point in pairwise(points):
            corners += [(point[0], height), point]
        self.line(corners, class_)

    def level(self, y: float, label: str, class_: str, *, until: float) -> None:
        """Draws a line across the whole picture, with its name above, ending at the value `until`."""
        height = self.up(y)
        self.add("line", x1=LEFT, x2=self.width - RIGHT, y1=height, y2=height, class_=class_)
        self.text(self.across(until) - 2, height - 5, label, anchor="end", class_="note")

    def plumb(self, x: float, label: str, class_: str) -> None:
        """Draws a line from top to bottom, with its name beside the upper end."""
        place = self.across(x)
        self.add("line", x1=place, x2=place, y1=TOP, y2=self.height - BOTTOM, class_=class_)
        is_right = place > self.width / 2
        self.text(place + (-5 if is_right else 5), TOP + 10, label, anchor="end" if is_right else "start")

    def whisker(self, x: float, low: float, high: float, class_: str) -> None:
        """Draws an interval, cut off at the edges of the picture."""
        bottom, top = (self.up(min(max(value, self.y[0]), self.y[1])) for value in (low, high))
        place = self.across(x)
        self.add("line", x1=place, x2=place, y1=bottom, y2=top, class_=class_)
        for height in (bottom, top):
            self.add("line", x1=place - 4, x2=place + 4, y1=height, y2=height, class_=class_)

    def text(self, x: float, y: float, words: str, *, anchor: str = "start", class_: str = "label") -> Element:
        """Writes words at a place given in the picture's units."""
        return self.add("text", words, x=x, y=y, text_anchor=anchor, class_=class_)

    def add(self, tag: str, *children: Element | str | None, **attributes: object) -> Element:
        """Adds an element to the picture."""
        node = element(tag, *children, **attributes)
        self.root.append(node)
        return node


def canvas(title: str, width: float, height: float) -> Element:
    """An empty picture that scales with the page."""
    root = element("svg", viewBox=f"0 0 {width:g} {height:g}", role="img")
    root.set("aria-label", clean(title))
    return root


def glyph(kind: str, x: float, y: float) -> Element:
    """The mark of a kind of outcome: a dot, a triangle pointing down (upper bound), a square or a cross."""
    if kind == "bound":
        points = f"{x - 4.5:.1f},{y - 3.5:.1f} {x + 4.5:.1f},{y - 3.5:.1f} {x:.1f},{y + 4.5:.1f}"
        return element("polygon", points=points, class_=f"mark {kind}")
    if kind == "memory":
        return element("rect", x=x - 4, y=y - 4, width=8.0, height=8.0, class_=f"mark {kind}")
    if kind == "failed":
        return element("path", d=f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8", class_=f"mark {kind}")
    return element("circle", cx=x, cy=y, r=4.5, class_=f"mark {kind}")


def bars(title: str, rows: Sequence[tuple[str, Sequence[tuple[float, str, str]], str]], *, total: float) -> Element:
    """Horizontal bars, one row each, with names on the left.

    Args:
        title: Description for people who cannot see the picture.
        rows: Name, parts as (length, class, tip), and the words at the end of the bar.
        total: Length of the full width, above 0.
    """
    row_height, name_width, end_width = 26.0, 150.0, 84.0
    root = canvas(title, WIDTH, row_height * len(rows) + 8)
    room = WIDTH - name_width - end_width
    for index, (name, parts, words) in enumerate(rows):
        top, place = index * row_height + 4, name_width
        shown = name if len(name) * LETTER_WIDTH < name_width else name[: int(name_width / LETTER_WIDTH) - 1] + "..."
        root.append(element("text", shown, x=name_width - 8, y=top + 15, text_anchor="end", class_="label"))
        for length, class_, tip in parts:
            width = room * max(0.0, length) / total
            bar = element("rect", element("title", tip), x=place, y=top, width=width, height=20.0, class_=class_)
            root.append(bar)
            place += width
        root.append(element("text", words, x=place + 6, y=top + 15, class_="label"))
    return root
