"""Shared by all pictures: colours by the family of a cache, grey that can be read on light and dark pages, labels beside points
and at the ends of lines, files."""
import colorsys
import re

import matplotlib

matplotlib.use("Agg")
import matplotlib.colors
import matplotlib.pyplot as plt
import matplotlib.ticker
from matplotlib.transforms import Bbox

# After Okabe and Ito's colours, which colour-blind people can tell apart (jfly.uni-koeln.de/color); each has a contrast of about 3 to 1
# or more with white and with dark pages.
BLUE, VERMILION, GREEN, GREY = "#1f7fc4", "#d55e00", "#009e73", "#858585"
# (title, the pattern of its types' names, colour); after these come pairs of types of two families.
FAMILIES = [("TurboQuant", r"tq\d", BLUE), ("trellis", r"tq\dt", VERMILION),
            ("ggml's types, as in llama.cpp", r"q\d_\d", GREEN), ("not compressed", r"b?f\d+", GREY)]
PAIRS = ("keys / values", GREY)
NAMES = {"tq5u/tq4t+256": "accurate", "tq4u/tq4+256": "balanced (default)", "tq4u/tq3t+256": "compact",
         "tq3t/tq2t+256": "smallest"}
PEERS = ("q4_0", "q8_0", "f16")  # the types of other programs
MARKERS = "osD^vP"
STYLE = {"font.size": 10, "figure.dpi": 72, "savefig.dpi": 144, "savefig.bbox": "tight", "savefig.transparent": True,
         "svg.fonttype": "none", "svg.hashsalt": "tq-run", "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
         "axes.axisbelow": True, "grid.color": GREY, "grid.alpha": 0.25, "legend.frameon": False, "legend.fontsize": 9,
         "axes.titlesize": 11, "axes.titlelocation": "left",
         **{f"{what}color": GREY for what in ("text.", "axes.label", "axes.edge", "axes.title", "xtick.", "ytick.")}}


class Bad(Exception):
    """An error in a file, as a sentence."""


class Page:
    """The directory for pictures."""

    def __init__(self, directory, formats):
        if not set(formats) <= {"svg", "png", "pdf"}:
            raise Bad(f"--formats {','.join(formats)}: there are svg, png and pdf")
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.formats, self.stems = directory, formats, set()
        plt.rcParams.update(STYLE)

    def below(self, name):
        return Page(self.directory / name, self.formats)

    def save(self, figure, name):
        stem = next(s for s in (name, *(f"{name}-{n}" for n in range(2, 10000))) if s not in self.stems)
        self.stems.add(stem)
        for ending in self.formats:
            path = self.directory / f"{stem}.{ending}"
            figure.savefig(path, metadata={"Date": None} if ending == "svg" else None)
            print(path)
        plt.close(figure)


def plain(text, most=80):
    """Text from a file as a picture has room for it: no formulas, no control characters; what distinguishes it is at its ends."""
    text = "".join(c if c.isprintable() else "?" for c in str(text))
    text = text if len(text) <= most else text[:most // 2] + "..." + text[3 - most // 2:]
    return text.replace("$", r"\$")


def short_name(cache):
    """tq4/tq4, window 16, not conditioned: tq4+16*"""
    types, *rest = [part for part in cache.split(", ") if part != "conditioned by norms"]  # which is the default
    k, _, v = types.replace("_128", "").partition("/")
    windows = [match[1] or match[2] for part in rest if (match := re.fullmatch(r"(\d+) [a-z]+|[a-z]+ (\d+)", part))]
    return (k if v in ("", k) else f"{k}/{v}") + "".join(f"+{n}" for n in windows) + ("*" if len(rest) > len(windows) else "")


def family(name):
    """(title, colour) of the cache with that short name."""
    types = re.sub(r"[+*].*", "", name)
    return next(((title, colour) for title, pattern, colour in FAMILIES if re.fullmatch(pattern, types)), PAIRS)


def luminance(colour):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def shade(colour, number):
    """The colour of the number-th cache of a family: another hue beside its own, as light, for grey a hue at all."""
    hue, light, saturation = colorsys.rgb_to_hls(*matplotlib.colors.to_rgb(colour))
    if number == 0:
        return colour
    hue = (hue + ((0, 0.11, -0.08, 0.2, -0.15) if 0.5 < hue < 0.7 else (0, -0.07, 0.07, -0.13, 0.13))[number % 5]) % 1
    while luminance(colorsys.hls_to_rgb(hue, light, saturation)) < 0.2:
        light += 0.02
    while luminance(colorsys.hls_to_rgb(hue, light, saturation)) > 0.3:
        light -= 0.02
    return matplotlib.colors.to_hex(colorsys.hls_to_rgb(hue, light, max(saturation, 0.25)))


def shades(names):
    """{name: colour} of caches by their short names."""
    number, found = {}, {}
    for name in names:
        title, colour = family(name)
        if name not in found:
            found[name] = shade(colour, number.setdefault(title, 0))
            number[title] += 1
    return found


def label_ends(axes, ends):
    """Each (x, y, text, colour) right of the end of its line, moved up or down if it would cover another."""
    axes.figure.canvas.draw()
    height = 12  # of a line of text, in points
    for x in {end[0] for end in ends}:
        column = sorted((end for end in ends if end[0] == x), key=lambda end: end[1])
        wanted = [axes.transData.transform(end[:2])[1] for end in column]
        at = list(wanted)
        for _ in range(200):
            for low in range(len(at) - 1):
                overlap = height - (at[low + 1] - at[low])
                if overlap > 0.01:
                    at[low], at[low + 1] = at[low] - overlap / 2, at[low + 1] + overlap / 2
        for (x, y, text, colour), new, old in zip(column, at, wanted):
            axes.annotate(text, (x, y), xytext=(9, new - old - 3.5), textcoords="offset points", color=colour, fontsize=9,
                          fontweight="bold", annotation_clip=False)


def covered(axes, points, renderer):
    """The boxes that labels must not cover: these points, the lines between points, the legend."""
    at = lambda x, y, half: Bbox.from_bounds(x - half, y - half, 2 * half, 2 * half)
    boxes = [at(*axes.transData.transform(point), 4) for point in points]
    for line in axes.get_lines():
        if line.get_linewidth() > 0 and line.get_linestyle() != "None" and len(line.get_xdata()) > 1:
            corners = axes.transData.transform(line.get_xydata())
            for (x, y), (to_x, to_y) in zip(corners, corners[1:]):
                steps = int(max(abs(to_x - x), abs(to_y - y)) / 4) + 1
                boxes += [at(x + (to_x - x) * i / steps, y + (to_y - y) * i / steps, 1) for i in range(steps)]
    return boxes + ([axes.get_legend().get_window_extent(renderer)] if axes.get_legend() else [])


def label_points(axes, labels):
    """Each (x, y, text, colour, needed) beside its point if it covers no other, no point and no line; needed ones anywhere near, with
    a line. Labels without a text only keep others away."""
    axes.figure.canvas.draw()
    renderer = axes.figure.canvas.get_renderer()
    inside = axes.get_window_extent(renderer)
    taken = covered(axes, [label[:2] for label in labels], renderer)
    near = [(8, 3, "left", False), (-8, -9, "right", False), (10, -1, "left", False), (8, -9, "left", False), (-8, 3, "right", False),
            (0, 8, "center", False), (0, -15, "center", False)]
    far = [(x * r, y * r, "left" if x > 0 else "right", True) for x, y in ((-1, -1), (1, 1), (1, -1), (-1, 1), (-1, -0.5), (1, 0.5))
           for r in (18, 30, 44, 60)]
    for x, y, text, colour, needed in sorted((label for label in labels if label[2]), key=lambda label: not label[4]):
        for dx, dy, align, line in near + (far if needed else []):
            note = axes.annotate(text, (x, y), xytext=(dx, dy), textcoords="offset points", ha=align, color=colour, fontsize=9,
                                 fontweight="bold" if text in NAMES.values() else "normal",
                                 arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkB": 4} if line else None)
            note.update_positions(renderer)
            box = matplotlib.text.Text.get_window_extent(note, renderer)
            if inside.x0 <= box.x0 and box.x1 <= inside.x1 + 60 and inside.y0 <= box.y0 and box.y1 <= inside.y1 and \
                    not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            note.remove()


def lines_by_depth(lines, title, y_label, note=""):
    """A figure of lines by the tokens before: [(label, colour, marker, [(depth, y, error)], [(depth, y)] of the prediction)].
    Labels are at the ends."""
    figure, axes = plt.subplots(figsize=(7.2, 3.4))
    for number, (_, colour, marker, points, expected) in enumerate(lines):
        depths, values, errors = zip(*points)
        axes.errorbar(depths, values, yerr=errors if any(errors) else None, color=colour, marker=marker, markersize=6, linewidth=2,
                      elinewidth=1, capsize=2, markerfacecolor=colour if marker == MARKERS[0] else "none")
        axes.get_lines()[-1].set_gid(f"line-{number}")
        if expected:
            axes.plot(*zip(*expected), color=colour, linewidth=1, linestyle=(0, (4, 3)), gid=f"expected-{number}")
    axes.set_ylim(bottom=0, top=1.08 * max(y + e for line in lines for _, y, e in line[3]))
    ticks = []
    for depth in sorted({point[0] for line in lines for point in line[3]}):
        if not ticks or depth - ticks[-1] > axes.get_xlim()[1] / 20:
            ticks.append(depth)
    axes.xaxis.set_major_locator(matplotlib.ticker.FixedLocator(ticks))
    axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda depth, _: f"{depth:,.0f}"))
    axes.set_xlabel("tokens before")
    axes.set_ylabel(y_label)
    axes.set_title(title)
    if note:
        axes.text(0.99, 0.04, note, transform=axes.transAxes, ha="right", fontsize=9)
    label_ends(axes, [(*line[3][-1][:2], line[0], line[1]) for line in lines])
    return figure
