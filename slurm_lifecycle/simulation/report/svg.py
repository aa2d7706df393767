"""Drawing in SVG as a tree, so that all text in it is escaped and every tag closed."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

Node = ElementTree.Element
Point = tuple[float, float]


class Markup(str):
    """Markup that a template takes as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        """Say to the template engine that nothing here needs escaping."""
        return self


@dataclass(frozen=True, slots=True)
class Canvas:
    """The room for a drawing. Each is made twice: text in one for a screen cannot be read on a phone."""

    width: float
    narrow: bool
    font: float = 13.0

    @property
    def css(self) -> str:
        """The class by which the style sheet shows one of the two."""
        return "narrow" if self.narrow else "wide"


WIDE = Canvas(width=960.0, narrow=False)
NARROW = Canvas(width=360.0, narrow=True, font=12.0)


def twice(draw: Callable[[Canvas], Node]) -> Markup:
    """A drawing for a screen and one for a phone; the style sheet shows one."""
    return Markup(
        "\n".join(ElementTree.tostring(draw(canvas), encoding="unicode") for canvas in (WIDE, NARROW))
    )


def drawing(canvas: Canvas, height: float, title: str) -> Node:
    """An empty drawing with its text alternative."""
    svg = Node(
        "svg",
        {
            "class": f"plot {canvas.css}",
            "viewBox": f"0 0 {fixed(canvas.width)} {fixed(height)}",
            "role": "img",
            "aria-label": title,
        },
    )
    tell(svg, title)
    return svg


def tell(shape: Node, words: str) -> None:
    """Give a shape its text alternative, which a pointer over it shows too."""
    ElementTree.SubElement(shape, "title").text = words


def write(parent: Node, at: Point, words: str, css: str = "", anchor: str = "start") -> Node:
    """Text whose base line begins (or ends, or has its middle) at a point."""
    attributes = {"x": fixed(at[0]), "y": fixed(at[1])}
    if css:
        attributes["class"] = css
    if anchor != "start":
        attributes["text-anchor"] = anchor
    element = ElementTree.SubElement(parent, "text", attributes)
    element.text = words
    return element


def bar(parent: Node, corner: Point, size: Point, css: str, words: str = "") -> Node:
    """A rectangle, by its upper left corner and its width and height."""
    attributes = {"class": css, "x": fixed(corner[0]), "y": fixed(corner[1])}
    attributes |= {"width": fixed(size[0]), "height": fixed(size[1])}
    shape = ElementTree.SubElement(parent, "rect", attributes)
    if words:
        tell(shape, words)
    return shape


def path(parent: Node, steps: str, css: str, words: str = "") -> Node:
    """A path."""
    shape = ElementTree.SubElement(parent, "path", {"class": css, "d": steps})
    if words:
        tell(shape, words)
    return shape


def line(parent: Node, start: Point, end: Point, css: str) -> Node:
    """A straight line."""
    return path(parent, f"M{fixed(start[0])} {fixed(start[1])}L{fixed(end[0])} {fixed(end[1])}", css)


def fixed(value: float) -> str:
    """A coordinate, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


_SHAPES = (
    "M{x} {y}m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
    "M{x} {y}m-4 -4h8v8h-8z",
    "M{x} {y}m0 -5.5l5.5 9.5h-11z",
    "M{x} {y}m0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
)


def mark(parent: Node, at: Point, index: int, css: str, words: str) -> Node:
    """A mark on a curve: circle, square, triangle or diamond, so that colour is not all that differs."""
    shape = _SHAPES[index % len(_SHAPES)].format(x=fixed(at[0]), y=fixed(at[1]))
    return path(parent, shape, css, words)


def ticks(highest: float, wanted: int) -> list[float]:
    """Round numbers from 0 to the first at or above the highest, about as many as wanted."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / max(1, wanted)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step for step in (1 * power, 2 * power, 5 * power, 10 * power) if step >= rough * 0.999)
    count = math.ceil(highest / step - 1e-9)
    return [step * place for place in range(count + 1)]


def short(value: float) -> str:
    """A number on an axis: 1,500, 20 k, 1.5 M."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= size:
            return f"{value / min(size, 1e3 if letter == ' k' else size):g}{letter}"
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:g}"


def clipped(words: str, room: float, font: float) -> str:
    """Words cut to fit a room, by what letters take on average."""
    fits = max(4, int(room / (font * 0.56)))
    return words if len(words) <= fits else words[: fits - 1].rstrip() + "…"


def stairs(points: Sequence[Point], end: float) -> str:
    """Level from each point to the next, up to the end; points rise in x. Without the first move."""
    drawn: list[str] = []
    level = ""
    for x, y in points:
        new = fixed(y)
        if new != level:
            drawn.append(f"H{fixed(x)}V{new}" if level else f"V{new}")
            level = new
    return "".join(drawn) + f"H{fixed(end)}"
