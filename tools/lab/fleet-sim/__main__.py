"""Predicts times to the first token, hit rates and bytes moved of a fleet of machines, for policies that choose the machine of a request.

  python3 tools/lab/fleet-sim tools/lab/fleet-sim/agents.json
  python3 tools/lab/fleet-sim tools/lab/fleet-sim/agents.json --policies hash,prefix --caches f16,tq4 --networks 1,10 --store

The file says what there is; docs/fleet.md describes its fields and the model.
"""
import argparse
import json
import math
import sys

from fleet import Simulation, Store
from machine import Kind
from policies import POLICIES
from traffic import Agents, Listed

GBPS = 1e9 / 8
NEVER = 1e30
COLUMNS = ["network", "cache", "store", "policy", "answers/s", "first token 50 %", "95 %", "found", "fetched", "run", "GB moved", "busy"]


def fail(reason):
    sys.exit(f"fleet-sim: {reason}")


def number(table, name, where, least=0.0, default=None):
    value = table.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= least:
        fail(f"{where}: \"{name}\" must be a number greater than {least:g}, but is {json.dumps(value)}")
    return value


def read_kinds(whole, network_gbps, disk_gb):
    """One Kind for each machine."""
    kinds = []
    if not isinstance(whole.get("machines"), list) or not whole["machines"]:
        fail('"machines" must be a list of objects')
    for entry in whole["machines"]:
        where = f"machine {entry.get('name', '?')}" if isinstance(entry, dict) else fail('"machines" must be a list of objects')
        fields = {name: number(entry, name, where) for name in ("prefill", "decode", "decode_all", "slots")}
        kind = Kind(name=str(entry.get("name", "?")), cache_bytes=(number(entry, "cache_gb", where) + disk_gb) * 1e9, network_bytes_s=network_gbps * GBPS,
                    block=number(entry, "block", where, default=512), device_bytes=number(entry, "device_gb", where, default=NEVER) * 1e9, weight=number(entry, "weight", where, default=1.0),
                    prefill_half=number(entry, "prefill_half", where, default=NEVER), memory_bytes_s=number(entry, "memory_gb_s", where, default=NEVER) * 1e9, **fields)
        if not kind.decode <= kind.decode_all <= kind.slots * kind.decode or kind.slots != int(kind.slots):
            fail(f"{where}: slots must be whole, decode_all from decode to slots times decode")
        kinds += [kind] * int(number(entry, "count", where, default=1))
    return kinds


def read_source(whole):
    agents, requests = whole.get("agents"), whole.get("requests")
    if isinstance(requests, list) and agents is None:
        names = ("talk", "arrival", "context", "new", "answer")
        for entry in requests:
            if not isinstance(entry, dict) or set(entry) != set(names):
                fail(f"each of \"requests\" must have {', '.join(names)}")
            for name in names[1:]:
                number(entry, name, "a request", least=-1)
        return Listed(requests)
    if not isinstance(agents, dict) or requests is not None:
        fail('there must be either "agents", an object, or "requests", a list')
    fields = {name: int(number(agents, name, "agents")) for name in ("agents", "system_tokens", "new_tokens", "answer_tokens", "context_tokens")}
    if fields["system_tokens"] >= fields["context_tokens"]:
        fail("agents: system_tokens must be less than context_tokens")
    return Agents(pause_s=number(agents, "pause_s", "agents"), ramp_s=number(agents, "ramp_s", "agents"), seed=agents.get("seed", 1), **fields)


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else math.nan


def simulate(whole, policy, cache, network, with_store, disk_gb):
    """Returns a row of the table. What is answered in the first part, while caches fill, does not count."""
    sizes = whole.get("bytes_per_token")
    if not isinstance(sizes, dict) or cache not in sizes:
        fail(f'"bytes_per_token" has no "{cache}"')
    seconds, warm_s = number(whole, "seconds", "the file"), number(whole, "warm_s", "the file", least=-1, default=0)
    size = number(sizes, cache, "bytes_per_token")
    store = Store(number(whole, "store_gbps", "the file", default=network) * GBPS, 0.002, number(whole, "page_tokens", "the file", default=256), size) if with_store else None
    simulation = Simulation(read_kinds(whole, network, disk_gb), policy, size, store)
    done = [request for request in simulation.run(read_source(whole), seconds) if request.end >= warm_s]
    prompt = sum(request.prompt for request in done) or math.nan
    found, fetched = sum(request.found for request in done), sum(request.fetched for request in done)
    times = [request.first_token - request.arrival for request in done]
    times += [seconds - request.arrival for request in simulation.open if not request.first_token] # so far
    moved = (store.bytes_out + store.bytes_in) / 1e9 if store else 0.0
    busy = sum(machine.busy_s for machine in simulation.machines) / (len(simulation.machines) * seconds)
    return {"network": f"{network:g} Gb/s", "cache": cache, "store": "yes" if with_store else "no", "policy": policy,
            "answers/s": round(len(done) / (seconds - warm_s), 2), "first token 50 %": f"{percentile(times, 0.5):.1f} s", "95 %": f"{percentile(times, 0.95):.1f} s",
            "found": f"{found / prompt:.0%}", "fetched": f"{fetched / prompt:.0%}", "run": f"{1 - (found + fetched) / prompt:.0%}",
            "GB moved": round(moved), "busy": f"{busy:.0%}"}


def chosen(text, known, flag):
    values = text.split(",")
    for value in values:
        name, colon, bound = value.partition(":")
        if known is not None and (name not in known or colon and not (name == "hash" and is_bound(bound))):
            fail(f"{flag} takes {', '.join(known)} and hash:BOUND with a bound of 1 or more, not {value}")
    return values


def is_bound(text):
    try:
        return 1 <= float(text) < math.inf
    except ValueError:
        return False


def main():
    parser = argparse.ArgumentParser(prog="fleet-sim", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="machines, and what is asked of them, as JSON")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--caches", default="tq4", help="names of bytes_per_token, with commas")
    parser.add_argument("--networks", default="1", help="Gb/s of each machine and of the store, with commas")
    parser.add_argument("--store", action="store_true", help="with a store that all share")
    parser.add_argument("--disk-gb", type=float, default=0, help="more of each machine's prefix cache, on its disk")
    parser.add_argument("--json", action="store_true", help="a list of objects instead of a table")
    options = parser.parse_args()
    try:
        with open(options.file, encoding="utf-8") as file:
            whole = json.load(file)
        networks = [float(text) for text in options.networks.split(",")]
    except (OSError, ValueError) as error:
        fail(f"{options.file}, --networks: {error}")
    if not isinstance(whole, dict) or any(not 0 < network < math.inf for network in networks) or not 0 <= options.disk_gb < math.inf:
        fail("the file must be a JSON object, networks numbers greater than 0, and --disk-gb 0 or more")
    rows = [simulate(whole, policy, cache, network, options.store, options.disk_gb) for network in networks for cache in chosen(options.caches, None, "--caches")
            for policy in chosen(options.policies, POLICIES, "--policies")]
    if options.json:
        return print(json.dumps(rows, indent=1))
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for row in rows:
        print("| " + " | ".join(str(row[column]) for column in COLUMNS) + " |")


if __name__ == "__main__":
    main()
