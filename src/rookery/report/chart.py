"""Line charts as inline SVG that stretches under labels that do not: readable at any width, without a script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from .numbers import Array, Curve

COLOURS = 7  # of the palette; more methods than that are dashed
LOG_FROM = 100.0  # positive values whose largest is so many times the smallest get a logarithmic axis
LABEL_GAP = 6.5  # per cent of the height between two labels at the lines' ends
FAR = 100.0  # sides of the plot that a line which leaves it is drawn on for, out of sight
_SIDE = 1000  # units of the drawing, each way


class Line(NamedTuple):
    """A curve, whose it is, and what its legend adds; its points with what each of them says, and the ends of their upright bars."""

    label: str
    place: int
    curve: Curve
    note: str = ""
    points: Sequence[str] = ()
    bars: tuple[Array, Array] | None = None


Span = tuple[float, float]


def swatch(place: int) -> str:
    """A short piece of a method's line, for legends and tables."""
    return f'<svg class="swatch" viewBox="0 0 22 8" aria-hidden="true"><path class="{_ink(place)}" d="M0 4h22"/></svg>'


def _ink(place: int) -> str:
    return f"line c{place % COLOURS} d{place // COLOURS % 3}"


def compact(value: float) -> str:
    """A number in few characters, for an axis.

    >>> compact(0.25), compact(12000), compact(2.5e6), compact(1e-7)
    ('0.25', '12k', '2.5M', '1e-07')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size and abs(value) < 1e12:
            return f"{value / (1e3 if letter == 'k' else size):g}{letter}"
    return f"{value:.6g}"


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from low to high.

    >>> ticks(0, 1), ticks(0.83, 0.97)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.84, 0.86, 0.88, 0.9, 0.92, 0.94, 0.96])
    """
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.85)
    digits = 12 - math.floor(math.log10(step))
    return [round(k * step, digits) for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


class Scale:
    """From values to per cent of the plot's side, linear or logarithmic; what lies beyond is moved to the edge, or to `far` sides away."""

    def __init__(self, low: float, high: float, log: bool = False, far: float = 0.0) -> None:
        self.log, self.far = log, far
        self.low, self.high = (math.log10(low), math.log10(high)) if log else (low, high)
        if self.high - self.low <= 1e-12 * max(abs(self.low), abs(self.high), 1e-300):  # a single value: give it room
            room = 0.5 if log or not low else 0.05 * abs(self.low)
            self.low, self.high = self.low - room, self.high + room

    def __call__(self, values: Array) -> Array:
        if self.log:
            values = np.log10(np.maximum(values, 10.0**self.low))
        return np.clip((values - self.low) / (self.high - self.low), -self.far, 1.0 + self.far) * 100

    def ticks(self) -> list[tuple[float, str]]:
        values = [10.0**k for k in ticks(self.low, self.high, 5) if k == int(k)] if self.log else ticks(self.low, self.high)
        return [(float(self(np.array(value))), compact(value)) for value in values]


def _path(x: Array, y: Array) -> str:
    """Relative whole-numbered steps: a third of the bytes of decimals, and finer than a pixel."""
    points = np.stack([x, 100 - y], axis=1) * (_SIDE / 100)
    steps = np.diff(points.round().astype(int), axis=0, prepend=0)
    return "m" + " ".join(f"{a} {b}" for a, b in steps)


def _apart(heights: Sequence[float]) -> list[float]:
    """Positions of labels near their heights (per cent from the top), in the same order, none on another."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    gap = min(LABEL_GAP, 100 / max(len(heights) - 1, 1))
    placed, floor = dict.fromkeys(order, 0.0), -math.inf
    for i in order:
        placed[i] = floor = max(heights[i], floor + gap)
    ceiling = 100.0
    for i in reversed(order):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - gap
    return [placed[i] for i in range(len(heights))]


def chart(lines: Sequence[Line], xlabel: str, ylabel: str, caption: str, *, unit: bool = False, chance: Span | None = None,
          within: tuple[Span, Span] | None = None, upright: float | None = None) -> str:
    """A figure of lines with their bands; `unit` fixes both axes to [0, 1], `chance` draws a line between two heights there.

    within:  the ends of the axes, across and up, where they are not those of the lines; what leaves them is cut off
    upright: where an upright broken line stands
    """
    low = min(float((line.curve.mean - (0 if line.curve.std is None else line.curve.std)).min()) for line in lines)
    high = max(float((line.curve.mean + (0 if line.curve.std is None else line.curve.std)).max()) for line in lines)
    least = min(float(line.curve.mean.min()) for line in lines)
    square = unit or within is not None
    log = not square and least > 0 and high / least >= LOG_FROM
    across = Scale(0, 1) if unit else Scale(min(float(line.curve.x[0]) for line in lines), max(float(line.curve.x[-1]) for line in lines))
    up = Scale(0, 1) if unit else Scale(least if log else low, high, log)
    if within is not None:
        across, up = (Scale(*span, far=FAR) for span in within)
    grid = "".join(f'<path class="grid" d="M0 {(100 - at) * 10:.0f}h{_SIDE}"/>' for at, _ in up.ticks())
    if chance:
        grid += f'<path class="chance" d="M0 {_SIDE * (1 - chance[0]):.0f}L{_SIDE} {_SIDE * (1 - chance[1]):.0f}"/>'
    if upright is not None:
        grid += f'<path class="chance" d="M{float(across(np.array(upright))) * 10:.0f} {_SIDE}V0"/>'
    bands, strokes, ends, legend, leaves = "", "", [], "", False
    for label, place, (x, mean, std, _), note, points, bars in lines:
        across_x, up_y = across(x), up(mean)
        leaves |= bool((abs(np.concatenate([across_x, up_y]) - 50) > 50 + 1e-9).any())
        if std is not None:
            edge = _path(np.concatenate([across_x, across_x[::-1]]), np.concatenate([up(mean + std), up(mean - std)[::-1]]))
            bands += f'<path class="band c{place % COLOURS}" d="{edge}z"/>'
        name = escape(label)
        strokes += f'<path class="{_ink(place)}" d="{_path(across_x, up_y)}"><title>{name}</title></path>'
        # the line's end as a stroke of no length: a round dot, however the drawing is stretched
        strokes += f'<path class="dot {_ink(place)}" d="{_path(across_x[-1:], up_y[-1:])}h0"/>' * (not square)
        if bars is not None:
            strokes += "".join(f'<path class="bar {_ink(place)}" d="M{a * 10:.0f} {1000 - b * 10:.0f}V{1000 - c * 10:.0f}"/>'
                               for a, b, c in zip(across_x, up(bars[0]), up(bars[1]), strict=True))
        for k, said in enumerate(points):
            at = _path(across_x[k:k + 1], up_y[k:k + 1])
            strokes += f'<path class="dot {_ink(place)}" d="{at}h0"><title>{escape(said)}</title></path>'
        ends.append(100 - float(up_y[-1]))
        legend += f'<li>{swatch(place)}<span>{name}</span>{f" <b>{escape(note)}</b>" if note else ""}</li>'
    labels = "" if square else "".join(f'<span class="end" style="top:{at:.1f}%">{swatch(line.place)}{escape(line.label)}</span>'
                                     for line, at in zip(lines, _apart(ends), strict=True))
    text = "".join(f'<span class="ty" style="top:{100 - at:.1f}%">{name}</span>' for at, name in up.ticks())
    text += "".join(f'<span class="tx" style="left:{at:.1f}%">{name}</span>' for at, name in across.ticks())
    return (f'<figure class="chart{" square" * square}"><div class="ylabel">{escape(ylabel)}{" (logarithmic)" if log else ""}</div>'
            f'<div class="plot{" cut" * leaves}">'
            f'<svg viewBox="0 0 {_SIDE} {_SIDE}" preserveAspectRatio="none" role="img" aria-label="{escape(caption)}">'
            f'{grid}{bands}{strokes}</svg>{text}{labels}</div><div class="xlabel">{escape(xlabel)}</div>'
            f'<ul class="legend">{legend}</ul><figcaption>{escape(caption)}</figcaption></figure>')
