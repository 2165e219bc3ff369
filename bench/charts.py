"""Charts as SVG text, from the standard library alone, so that the same numbers always give the same file."""

from html import escape
from math import ceil, floor, log10

COLOURS = {
    "Greyhound": "#c0392b",
    "torch eager": "#7f8c8d",
    "torch.compile": "#2980b9",
    "Liger": "#27ae60",
    "Quack": "#e08e0b",
    "memcpy": "#2c3e50",
    "torch fp32": "#2c3e50",
    "torch bf16": "#2980b9",
    "Greyhound, in place": "#e08e0b",
    "seeds": "#e4e7ea",
}
FONT = 'font-family="Helvetica, Arial, sans-serif"'
INK, GRID = "#222222", "#dddddd"


class Canvas:
    def __init__(self, width, height, title):
        self.width, self.height = width, height
        self.parts = [f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
        self.text(width / 2, 24, title, size=15, bold=True)

    def rect(self, x, y, width, height, fill):
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" fill="{fill}"/>'
        )

    def line(self, points, colour, width=1.0, dash=""):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"{dashes}/>')

    def area(self, points, colour):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polygon points="{path}" fill="{colour}"/>')

    def dot(self, x, y, colour):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')

    def text(self, x, y, text, size=12, anchor="middle", bold=False, colour=INK, turned=False):
        weight = ' font-weight="bold"' if bold else ""
        turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" {FONT} font-size="{size}" text-anchor="{anchor}" fill="{colour}"'
            f"{weight}{turn}>{escape(text)}</text>"
        )

    def svg(self):
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}">\n{body}\n</svg>\n'
        )


def legend(canvas, names, x, y):
    for name in names:
        canvas.rect(x, y - 9, 11, 11, COLOURS.get(name, INK))
        canvas.text(x + 16, y, name, anchor="start")
        x += 32 + 7.2 * len(name)


def heat_map(title, columns, rows, cells, x_label, y_label):
    """cells[row][column] is (value, text lines) or None. Low values are pale."""
    values = [cell[0] for row in cells for cell in row if cell]
    low, high = min(values), max(values)
    width, height, left, top = 130, 52, 110, 44
    canvas = Canvas(left + width * len(columns) + 30, top + height * len(rows) + 58, title)
    for r, row in enumerate(rows):
        y = top + height * r
        canvas.text(left - 10, y + height / 2 + 4, f"{row}", anchor="end")
        for c, _ in enumerate(columns):
            x = left + width * c
            if not cells[r][c]:
                canvas.rect(x, y, width - 2, height - 2, "#f2f2f2")
                continue
            value, lines = cells[r][c]
            share = (value - low) / (high - low) if high > 1.02 * low else 0.5
            fill = "#%02x%02x%02x" % tuple(round(a + (b - a) * share) for a, b in zip((253, 237, 220), (192, 57, 43)))
            canvas.rect(x, y, width - 2, height - 2, fill)
            for i, line in enumerate(lines):
                middle = y + height / 2 + 4 + 16 * (i - (len(lines) - 1) / 2)
                canvas.text(x + width / 2, middle, line, bold=i == 0, colour="#ffffff" if share > 0.6 else INK)
    bottom = top + height * len(rows)
    for c, column in enumerate(columns):
        canvas.text(left + width * (c + 0.5), bottom + 18, f"{column}")
    canvas.text(left + width * len(columns) / 2, bottom + 42, x_label)
    canvas.text(22, top + height * len(rows) / 2, y_label, turned=True)
    return canvas.svg()


def round_ticks(high, count=5):
    step = 10 ** floor(log10(high / count))
    step *= next(m for m in (1, 2, 5, 10) if high / (step * m) <= count)
    return [step * i for i in range(ceil(high / step) + 1)]


def bar_chart(title, groups, series, x_label, y_label):
    """series: name -> one value (or None) for each group."""
    left, top, plot_width, plot_height = 70, 70, 700, 300
    canvas = Canvas(left + plot_width + 20, top + plot_height + 60, title)
    legend(canvas, series, left, 50)
    ticks = round_ticks(max(v for values in series.values() for v in values if v is not None))
    scale = plot_height / ticks[-1]
    for tick in ticks:
        y = top + plot_height - tick * scale
        canvas.line([(left, y), (left + plot_width, y)], GRID)
        canvas.text(left - 8, y + 4, f"{tick:g}", anchor="end")
    group_width = plot_width / len(groups)
    bar_width = group_width * 0.84 / len(series)
    for g, group in enumerate(groups):
        for s, (name, values) in enumerate(series.items()):
            if values[g] is None:
                continue
            x = left + group_width * (g + 0.08) + bar_width * s
            height = values[g] * scale
            canvas.rect(x, top + plot_height - height, bar_width - 2, height, COLOURS.get(name, INK))
            canvas.text(x + bar_width / 2 - 1, top + plot_height - height - 4, f"{values[g]:.2f}", size=9)
        canvas.text(left + group_width * (g + 0.5), top + plot_height + 18, f"{group}")
    canvas.text(left + plot_width / 2, top + plot_height + 44, x_label)
    canvas.text(20, top + plot_height / 2, y_label, turned=True)
    return canvas.svg()


def line_chart(title, series, x_label, y_label):
    """series: name -> [(x, y)]. Both axes are logarithmic: a cost that grows linearly has slope 1."""
    left, top, plot_width, plot_height = 70, 70, 690, 320
    canvas = Canvas(left + plot_width + 40, top + plot_height + 60, title)
    legend(canvas, series, left, 50)
    points = [point for values in series.values() for point in values]
    xs = sorted({x for x, _ in points})
    x0, x1 = log10(xs[0]), log10(xs[-1]) if len(xs) > 1 else log10(xs[0]) + 1
    y0, y1 = floor(log10(min(y for _, y in points)) * 2) / 2, ceil(log10(max(y for _, y in points)) * 2) / 2

    def place(x, y):
        return left + plot_width * (log10(x) - x0) / (x1 - x0), top + plot_height * (y1 - log10(y)) / (y1 - y0)

    for exponent in range(floor(y0), ceil(y1) + 1):
        for digit in (1, 2, 5):
            tick = digit * 10.0**exponent
            if not 10**y0 * 0.999 <= tick <= 10**y1 * 1.001:
                continue
            _, y = place(xs[0], tick)
            canvas.line([(left, y), (left + plot_width, y)], GRID)
            canvas.text(left - 8, y + 4, f"{tick:g}", anchor="end")
    free_from = float("-inf")
    for x in xs:
        at, _ = place(x, 10**y0)
        canvas.line([(at, top), (at, top + plot_height)], GRID)
        if at >= free_from:  # labels that would overlap are left out
            canvas.text(at, top + plot_height + 18, f"{x}")
            free_from = at + 9.0 * len(f"{x}")
    for name, values in series.items():
        places = [place(x, y) for x, y in sorted(values)]
        canvas.line(places, COLOURS.get(name, INK), width=2, dash="5 4" if name == "memcpy" else "")
        for x, y in places:
            canvas.dot(x, y, COLOURS.get(name, INK))
    canvas.text(left + plot_width / 2, top + plot_height + 44, x_label)
    canvas.text(20, top + plot_height / 2, y_label, turned=True)
    return canvas.svg()


def linear_ticks(low, high, count=6):
    """Round numbers from low to high, about `count` of them."""
    step = 10 ** floor(log10((high - low) / count))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= count)
    return [step * i for i in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def curves(title, series, x_label, y_label, first=0, band=None):
    """series: name -> one value for each step, from `first`. band: (name, lowest, highest), an area behind them."""
    left, top, plot_width, plot_height = 80, 70, 690, 320
    canvas = Canvas(left + plot_width + 30, top + plot_height + 60, title)
    legend(canvas, [*series, *([band[0]] if band else [])], left, 50)
    everything = [value for values in (*series.values(), *(band[1:] if band else [])) for value in values]
    low, high = min(everything), max(everything)
    margin = 0.04 * (high - low) or 1.0
    low, high = low - margin, high + margin
    steps = max(len(values) for values in series.values())

    def place(step, value):
        return left + plot_width * (step - first) / max(steps - 1, 1), top + plot_height * (high - value) / (high - low)

    if band:
        _, lowest, highest = band
        there = [place(*point) for point in enumerate(highest, first)]
        back = [place(*point) for point in enumerate(lowest, first)][::-1]
        canvas.area(there + back, COLOURS[band[0]])
    for tick in linear_ticks(low, high):
        _, y = place(first, tick)
        canvas.line([(left, y), (left + plot_width, y)], GRID)
        canvas.text(left - 8, y + 4, f"{tick:.6g}", anchor="end")
    for tick in linear_ticks(first, first + max(steps - 1, 1)):
        x, _ = place(tick, low)
        canvas.text(x, top + plot_height + 18, f"{tick:g}")
    for name, values in series.items():
        canvas.line([place(*point) for point in enumerate(values, first)], COLOURS.get(name, INK), width=1.5)
    canvas.text(left + plot_width / 2, top + plot_height + 44, x_label)
    canvas.text(20, top + plot_height / 2, y_label, turned=True)
    return canvas.svg()
