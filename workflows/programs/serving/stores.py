"""Proofs of stores of figures and of lines, and of whatever answers HTTP: what was put in is found again."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone
from typing import Any, Dict, List, Mapping, cast
from urllib.parse import urlencode

from workflows.programs.serving.ask import FAIL, PASS, UNKNOWN, NotServedError, Seen, served
from workflows.programs.serving.world import PodWish, World, part

METRIC = "primus_serving_proof"
PAST_SECONDS = 60.0
"""Stores hide what is newer than half a minute, so that late samples do not bend curves."""
RANK, OTHER_RANK = "3", "4"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
RUN = "primus-flows.io/run"


def metrics(world: World, parameters: Mapping[str, str]) -> Seen:
    """A sample with a value that nobody else has is written and asked for."""
    value, at = str(int(world.mark[:6], 16)), int((time.time() - PAST_SECONDS) * 1000)
    line = f'{METRIC}{{mark="{world.mark}"}} {value} {at}\n'
    served("POST", parameters["write_url"], (200, 204), line.encode())
    query = urlencode({"query": f'last_over_time({METRIC}{{mark="{world.mark}"}}[5m])'})

    def found() -> str:
        reply = served("GET", f"{parameters['query_url']}?{query}", (200,))
        try:
            results = cast("Dict[str, Any]", json.loads(reply.body))["data"]["result"]
            return ",".join(str(one["value"][1]) for one in results)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise NotServedError(f"the answer to the query cannot be read: {reply.shown}") from error

    told = world.until(found)
    if told == value:
        return Seen(PASS, f"a sample was written and found again: {METRIC} {value}")
    return Seen(FAIL, f"a sample {value} was accepted and the query finds {told or 'nothing'}")


def logs(world: World, parameters: Mapping[str, str]) -> Seen:
    """A marked line is written, or printed by a pod, and found by its run and rank, and not by another one's."""
    run, shipped = f"primus-proof-{world.mark}", bool(parameters.get("shipped"))
    if shipped:
        message = f"primus proof {world.mark}"
        world.start(PodWish("says", command=("serving-helper", "--do=say", f"--text={message}"), labels={RUN: run}))
    else:
        now = datetime.now(timezone.utc).isoformat()
        line = {"_time": now, "_msg": f"primus proof {world.mark}", "run": run, "rank": RANK}
        served("POST", parameters["write_url"], (200, 204), json.dumps(line).encode() + b"\n")
    by_rank = "" if shipped else f' AND rank:"{RANK}"'
    found = world.until(lambda: _lines(parameters["query_url"], f'run:"{run}"{by_rank} AND "{world.mark}"', world.mark))
    if not found:
        how = "a pod printed a line" if shipped else "a line was accepted"
        return Seen(FAIL, f"{how} and is not found by run{'' if shipped else ' and rank'}")
    if not shipped and _lines(parameters["query_url"], f'run:"{run}" AND rank:"{OTHER_RANK}"', world.mark):
        return Seen(FAIL, f"the line of rank {RANK} is found as that of rank {OTHER_RANK} too")
    return Seen(PASS, f"a marked line was found by run{'' if shipped else ' and rank'}")


def _lines(url: str, query: str, mark: str) -> str:
    reply = served("POST", url, (200,), urlencode({"query": query}).encode(), FORM)
    return "\n".join(line for line in reply.text.splitlines() if mark in line)


def http(world: World, parameters: Mapping[str, str]) -> Seen:
    """The page answers 200 and holds the words; with `nodes` on each of them (`{node}` in the URL is its address).

    `deployments`, as `namespace/name` with blanks between, must have all their pods ready beside.
    """
    for one in parameters.get("deployments", "").split():
        _all_ready(world, *one.split("/", 1))
    page, words = f"{parameters['url'].rstrip('/')}{parameters.get('path', '/')}", parameters.get("contains", "")
    if not parameters.get("nodes"):
        _page(page, words)
        return Seen(PASS, f"{page.split('?', maxsplit=1)[0]} answered" + (f" with {words}" if words else ""))
    addresses = world.node_addresses()
    bad: List[str] = []
    for node, address in addresses.items():
        try:
            _page(page.replace("{node}", address), words)
        except Exception as error:
            bad.append(f"{node}: {error}")
    if not addresses:
        return Seen(UNKNOWN, "no node is ready to be asked")
    return Seen(FAIL, "; ".join(bad[:4])) if bad else Seen(PASS, f"{len(addresses)} nodes answered")


def _all_ready(world: World, namespace: str, name: str) -> None:
    found = world.api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
    status, wanted = part(found, "status"), int(part(found, "spec").get("replicas", 1))
    ready = min(int(status.get(word) or 0) for word in ("updatedReplicas", "readyReplicas"))
    seen = int(status.get("observedGeneration") or 0) >= int(part(found, "metadata").get("generation") or 0)
    if not seen or not wanted or ready < wanted:
        raise NotServedError(f"{ready} of {wanted} pods of Deployment {namespace}/{name} are ready as it is now wanted")


def _page(url: str, words: str) -> None:
    reply = served("GET", url, (200,))
    if words not in reply.text:
        raise NotServedError(f"{url.split('?', maxsplit=1)[0]} answered without {words!r}: {reply.shown}")
