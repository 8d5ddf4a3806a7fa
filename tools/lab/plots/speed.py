"""Pictures of the measurements of tq-run bench -o json (or jsonl): for each model the prompt speed, generation, a token's time
beside its prediction, the share of the bandwidth, and the speed over that of f16."""
import itertools
import json
import math
import re

from plots.style import MARKERS, Bad, lines_by_depth, plain, shades, short_name

BASELINE = "f16/f16"


def documents(path):
    """The results of a file: a list, one object, or an object a line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Bad(f"{path} cannot be read: {error}") from None
    parts = [("", text)]
    if text.partition("\n")[0].endswith("}") and len(text.partition("\n")[0]) > 1:
        parts = [(f", line {number}", line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    for where, part in parts:
        try:
            found = json.loads(part)
        except (ValueError, RecursionError):
            raise Bad(f"{path}{where} is not JSON: give what tq-run bench -o json or jsonl printed") from None
        yield from found if isinstance(found, list) else [found]


class Fields:
    """The fields of one result, with errors that name the file and the result."""

    def __init__(self, json_object, what):
        self.json, self.what = json_object, what
        if not isinstance(json_object, dict):
            raise Bad(f"{what} is no JSON object")

    def get(self, key, kind, words):
        value = self.json.get(key)
        if not isinstance(value, kind):
            raise Bad(f"{self.what} has no {words} \"{key}\": it is not of tq-run bench")
        return value

    def text(self, key):
        return self.get(key, str, "text")

    def object(self, key):
        return Fields(self.get(key, dict, "object"), f"\"{key}\" of {self.what}")

    def number(self, key, otherwise=None):
        value = self.json.get(key)
        if value is None and otherwise is not None:
            return otherwise
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1e18:
            raise Bad(f"{self.what} has a \"{key}\" that is no number from 0 on")
        return float(value)

    def count(self, key):
        value = self.number(key)
        if value != int(value) or value > 1 << 24:
            raise Bad(f"{self.what} has a \"{key}\" that is no count")
        return int(value)


def attention_bytes_per_ns(result, what):
    """The bandwidth of the attention kernel, whose variants have other names; 0: it was not timed."""
    total, ns = 0, 0
    rows = result.get("kernels") or []
    if not isinstance(rows, list):
        raise Bad(f"{what} has \"kernels\" that are no list")
    for row in rows:
        fields = Fields(row, f"\"kernels\" of {what}")
        if re.match("attention(?!_(combine|merge))", fields.text("kernel")):
            total, ns = total + fields.number("bytes"), ns + fields.number("ns")
    return total / ns if ns else 0


def read_result(result, what):
    fields = Fields(result, what)
    if fields.text("schema") != "tq-run-bench" or result.get("version") != 2:
        raise Bad(f"{what} is of {fields.text('schema')}, version {result.get('version')}: this draws version 2 of tq-run-bench")
    model, device = fields.object("model"), fields.object("device")
    prompt, generated, speed = fields.count("n_prompt"), fields.count("n_gen"), fields.number("avg_ts")
    if prompt + generated == 0:
        raise Bad(f"{what} is neither of a prompt nor of generated tokens")
    if speed < 1e-6:
        raise Bad(f"{what} has a speed of 0")
    samples = result.get("samples_ns")
    deviation = fields.number("stddev_ts", 0)
    n_threads = fields.count("n_threads")
    threads = f", {n_threads} thread{'s' * (n_threads != 1)}" if device.text("backend") == "CPU" else ""
    return {"device": device.text("name") + threads, "index": device.count("index"), "model": fields.text("model_type"),
            "layers": model.count("layers"), "file": re.split(r"[/\\]", fields.text("model_filename"))[-1], "cache": fields.text("cache"),
            "test": "+".join(f"{name}{n}" for name, n in (("pp", prompt), ("tg", generated)) if n), "prompt": prompt,
            "depth": fields.count("n_depth"), "speed": speed, "deviation": deviation,
            "error": deviation / math.sqrt(len(samples)) if isinstance(samples, list) and samples else deviation,
            "threads": fields.count("n_threads"), "batch": fields.count("n_batch"), "share": fields.number("bandwidth_share", math.nan),
            "cache_bytes": fields.number("kv_bytes_stored_per_token", 0), "attention": attention_bytes_per_ns(result, what)}


def tell_apart(points, key, by, words):
    """Where points with equal values of all keys in `key` differ in `by`, appends that to the value of the last key."""
    keys = key if isinstance(key, tuple) else (key,)
    same = lambda point: tuple(point[k] for k in keys)
    values = {}
    for point in points:
        values.setdefault(same(point), set()).add(point[by])
    for point, different in [(point, len(values[same(point)]) > 1) for point in points]:
        if different:
            point[keys[-1]] += words.format(point[by])


def read_files(paths):
    everything, stems = [], [path.stem for path in paths]
    for path in paths:
        points = []
        for result in documents(path):
            what = f"result {len(points) + 1} of {path}"
            if isinstance(result, dict) and "results" in result:
                raise Bad(f"{path} is of a tq-run bench before its results became llama-bench's list: measure again")
            points.append(read_result(result, what))
            points[-1]["from"] = path.stem if stems.count(path.stem) == 1 else path
        if not points:
            raise Bad(f"{path} has no results of tests")
        tell_apart(points, "device", "index", " #{}")
        tell_apart(points, ("device", "test"), "threads", ", {} threads")
        tell_apart(points, ("device", "test"), "batch", ", blocks of {}")
        everything += points
    tell_apart(everything, "model", "layers", ", {} layers")
    tell_apart(everything, "model", "file", " ({})")
    tell_apart(everything, "device", "from", " [{}]")
    return list({tuple(p[k] for k in ("device", "model", "cache", "test", "depth")): p for p in everything}.values())


def expected_ms(line):
    """Two points of the time that a token is expected to take: from the first point on, as steep as the cache's bytes over the
    attention kernel's bandwidth at the greatest depth."""
    timed = [p for p in line if p["attention"] and p["cache_bytes"]]
    first, last = line[0], line[-1]
    if not timed or first is last:
        return []
    slope = timed[-1]["cache_bytes"] / timed[-1]["attention"] * 1e-6
    start = 1e3 / first["speed"]
    return [(first["depth"], start), (last["depth"], start + slope * (last["depth"] - first["depth"]))]


def draw_kind(page, name, points, words, y_label, value, expected=None):
    """value(point): (y, its error), or None if the point has none."""
    points = [p for p in points if value(p)]
    if not points:
        return
    groups = {}
    for p in sorted(points, key=lambda p: p["depth"]):
        groups.setdefault((p["cache"], p["test"], p["device"]), []).append(p)
    order = {key: n for n, key in enumerate(dict.fromkeys((p["cache"], p["test"], p["device"]) for p in points))}
    same = {key: len({p[key] for p in points}) == 1 for key in ("test", "device")}
    others = list(dict.fromkeys((p["test"], p["device"]) for p in points))
    colours = shades(short_name(p["cache"]) for p in points)
    lines = []
    for (cache, test, device), line in sorted(groups.items(), key=lambda group: order[group[0]]):
        parts = [short_name(cache), *([] if same["test"] else [test]), *([] if same["device"] else [device])]
        values = [(p["depth"], *value(p)) for p in line]
        label = f"{plain(', '.join(parts), 48)}, {values[-1][1]:.3g}"
        lines.append((label, colours[short_name(cache)], MARKERS[others.index((test, device)) % len(MARKERS)], values,
                      expected(line) if expected else []))
    first = points[0]
    common = ", ".join(plain(first[key]) for key in ("device", "test") if same[key])
    title = plain(f"{first['model']}: {words}") + (f"\n{common}" if common else "")
    note = "dashed: the cache's bytes over the attention kernel's bandwidth" if any(line[4] for line in lines) else ""
    stem = re.sub(r"[^a-z0-9_.]", "-", first["model"][:60].lower())
    page.save(lines_by_depth(lines, title, y_label, note), f"{name}-{stem}")


def draw_model(points, page):
    exact = {(p["device"], p["test"], p["depth"]): p for p in points if p["cache"] == BASELINE}

    def over_f16(p):
        base = exact.get((p["device"], p["test"], p["depth"]))
        if not base or p is base:
            return None
        ratio = p["speed"] / base["speed"]
        return ratio, ratio * math.hypot(p["error"] / p["speed"], base["error"] / base["speed"])

    speed = lambda p: (p["speed"], p["deviation"])
    time = lambda p: (1e3 / p["speed"], 1e3 * p["deviation"] / p["speed"] ** 2)
    share = lambda p: (100 * p["share"], 0) if p["share"] <= 1 else None  # more: the limit was mis-measured
    prompts, generated = [p for p in points if p["prompt"]], [p for p in points if not p["prompt"]]
    draw_kind(page, "prompt", prompts, "reading of prompts", "tokens per second", speed)
    draw_kind(page, "generation", generated, "generation", "tokens per second", speed)
    draw_kind(page, "time", generated, "time of a token", "ms per token", time, expected_ms)
    draw_kind(page, "bandwidth", generated, "share of the bandwidth", "% of what the device reads at best", share)
    draw_kind(page, "over-f16", generated, "speed over that with a cache of f16", "times as fast", over_f16)


def draw(paths, page):
    points = sorted(read_files(paths), key=lambda p: p["model"])
    for _, of_model in itertools.groupby(points, key=lambda p: p["model"]):
        draw_model(list(of_model), page)
