"""The logs of tq-run perplexity, and llama.cpp's own caches measured by its llama-perplexity on the same text."""
import json
import math
import re
import statistics

from reports.command import Log, mean, run

PEER_CACHES = ["q8_0", "q5_1", "q4_0", "iq4_nl"]


class Row:
    """A log of tq-run perplexity; the second half of each chunk counts, as there."""

    def __init__(self, path):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        self.head, context = lines[0], lines[0]["context"]
        self.size = round(self.head["kv_bytes_per_token"] + self.head["kv_window_bytes"] / context)
        half = lambda key: [v for part in lines[1:] for v in part[key][context // 2 - 1:]]
        self.kl, self.top = mean(half("kl")), mean(half("same_top"))
        self.median, self.tokens = statistics.median(half("kl")), len(half("kl"))
        ranked = sorted(half("kl"))
        self.quantile = lambda share: ranked[max(math.ceil(share * len(ranked)), 1) - 1]
        quarter = lambda n: [v for part in lines[1:] for v in part["kl"][n * (context - 1) // 4:(n + 1) * (context - 1) // 4]]
        self.quarters = [mean(quarter(n))[0] for n in range(4)]
        self.loss, self.reference_loss = mean(half("loss"))[0], mean(half("reference_loss"))[0]

    def cells(self):
        kl = f"{self.kl[0]:.2e} ± {self.kl[1]:.0e}" if self.kl[0] else "0"
        return f"{kl} | {100 * self.top[0]:.2f} % | {math.exp(self.loss):.4f}"

    def figures(self):
        return {"size": self.size, "kv_bytes_per_token": self.head["kv_bytes_per_token"], "kv_window_bytes": self.head["kv_window_bytes"],
                "kl": self.kl[0], "kl_error": self.kl[1], "kl_median": self.median, "kl_99": self.quantile(0.99),
                "kl_999": self.quantile(0.999), "kl_by_quarter": self.quarters, "same_top": self.top[0], "same_top_error": self.top[1],
                "perplexity": math.exp(self.loss), "perplexity_f16": math.exp(self.reference_loss)}


def peer_figures(said):
    """The figures in what llama-perplexity --kl-divergence prints. None if they are not there."""
    wanted = {"kl": r"Mean +KLD: +(\S+)", "kl_error": r"Mean +KLD: +\S+ +± +(\S+)", "kl_median": r"Median +KLD: +(\S+)",
              "kl_99": r"99\.0% +KLD: +(\S+)", "kl_999": r"99\.9% +KLD: +(\S+)", "same_top": r"Same top p: +(\S+)",
              "perplexity": r"Mean PPL\(Q\) +: +(\S+)", "perplexity_f16": r"Mean PPL\(base\) +: +(\S+)"}
    found = {name: re.search(pattern, said) for name, pattern in wanted.items()}
    if not all(found.values()):
        return None
    figures = {name: float(match[1]) for name, match in found.items()}
    return {**figures, "same_top": figures["same_top"] / 100}


def measure_peer(program, flags, folder, name, head):
    """A row of figures of each of llama.cpp's caches, against its own f16. `flags`: model, text and lengths; `head`: the log's."""
    log, base = Log(folder / f"{name}.jsonl", **head), folder / f"{name}.logits"
    try:
        for cache in PEER_CACHES:
            if cache in log.results:
                continue
            common = [*program, *flags, "-fa", "on", "--kl-divergence-base", base]
            if not base.exists():
                run([*common, "-ctk", "f16", "-ctv", "f16"])
            figures = peer_figures(run([*common, "-ctk", cache, "-ctv", cache, "--kl-divergence"]))
            if not figures:
                raise SystemExit(f"quality-report: {program[-1]} printed no divergence of {cache}: it must be llama.cpp's llama-perplexity")
            log.add(cache, figures)
    finally:
        base.unlink(missing_ok=True)
    return [{"cache": cache, **log.results[cache]} for cache in PEER_CACHES]
