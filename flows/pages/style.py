"""How report pages look: light, dark, narrow and printed, and one colour and pattern for each state of a run's time.

Text keeps a contrast of at least 4.5 to 1. The colours of states are Okabe and Ito's palette, which people with any
colour vision can tell apart. States that share a colour differ by their pattern, and every place that shows one also
names it in text.
"""

from __future__ import annotations

from dataclasses import dataclass

from profiles.vocabulary import Tile

STYLE = """
:root{--page:#fff;--text:#1b1f24;--muted:#555d66;--line:#d0d7de;--soft:#f3f5f7;--link:#0757a8;--a:#0072b2;--b:#b84a00;
--warn:#a33b00;color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--page:#14181d;--text:#e6e9ec;--muted:#a9b2bb;--line:#3a424b;--soft:#1e242b;
--link:#7cb8f2;--a:#56b4e9;--b:#ff9d5c;--warn:#ffb38a}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1000px;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.5rem 0 .5rem;padding-top:.75rem;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:1.25rem 0 .25rem}
p{margin:.4rem 0;max-width:75ch;overflow-wrap:anywhere}
.muted{color:var(--muted)}
.defs{position:absolute}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.75rem;margin:1.25rem 0}
.facts div{background:var(--soft);border:1px solid var(--line);border-radius:6px;padding:.6rem .8rem;min-width:0}
.facts dt{color:var(--muted);font-size:.85rem}
.facts dd{margin:0;font-size:1.25rem;font-weight:600;overflow-wrap:anywhere}
.scroll{overflow-x:auto;margin:.75rem 0}
table{border-collapse:collapse;font-size:.9rem;min-width:100%}
caption{text-align:left;color:var(--muted);padding-bottom:.3rem}
th,td{text-align:left;vertical-align:top;padding:.3rem .7rem .3rem 0;border-bottom:1px solid var(--line)}
td{max-width:22rem;overflow-wrap:break-word}
td:first-child{white-space:nowrap}
td:has(.bar){width:50%;max-width:none}
th{font-weight:600;white-space:nowrap}
.long{min-width:11rem}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.swatch{vertical-align:-2px;margin-right:.4rem;outline:1px solid var(--line)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.25rem 1.1rem;margin:.6rem 0;padding:0;font-size:.9rem}
.plot{display:grid;grid-template-columns:4.6rem minmax(0,1fr);margin:.75rem 0}
.plot svg{grid-column:2;width:100%;display:block;background:var(--soft);border:1px solid var(--line)}
.plot .left{display:flex;flex-direction:column;justify-content:space-between;text-align:right;padding-right:.4rem;
font-size:.78rem;line-height:1.2;color:var(--muted);font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.plot .below{grid-column:2;display:flex;justify-content:space-between;gap:.5rem;font-size:.78rem;color:var(--muted)}
.plot .below span:last-child{text-align:right}
.rows{display:grid;grid-template-columns:minmax(4.6rem,max-content) minmax(0,1fr);gap:3px .4rem;margin:.75rem 0;
align-items:center}
.rows .name{font-size:.78rem;line-height:1.2;text-align:right;max-width:11rem;overflow-wrap:anywhere}
.rows svg{width:100%;height:20px;display:block;background:var(--soft)}
.rows .below{grid-column:2;display:flex;justify-content:space-between;gap:.5rem;font-size:.78rem;color:var(--muted)}
.bar{min-width:4.5rem}
.bar svg{width:100%;height:14px;display:block;background:var(--soft);margin-top:.25rem}
.a{fill:none;stroke:var(--a);stroke-width:1.6}
.b{fill:none;stroke:var(--b);stroke-width:1.6;stroke-dasharray:5 3}
.area{fill:var(--a);fill-opacity:.35;stroke:var(--a);stroke-width:1}
.band{fill:var(--b);fill-opacity:.22}
.mark{stroke:var(--warn);stroke-width:1.5;stroke-dasharray:2 2}
.key{display:inline-block;width:1.6rem;border-top:3px solid var(--a);vertical-align:.25em;margin-right:.4rem}
.key.b{border-top-style:dashed;border-color:var(--b)}
details{border:1px solid var(--line);border-radius:6px;margin:.6rem 0;padding:.5rem .8rem;background:var(--page)}
summary{cursor:pointer;font-weight:600;overflow-wrap:anywhere}
details pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--soft);padding:.5rem;font-size:.82rem;
margin:.5rem 0}
details dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.15rem .8rem;margin:.5rem 0;font-size:.9rem}
details dt{color:var(--muted)}
details dd{margin:0;overflow-wrap:anywhere}
a{color:var(--link)}
:focus-visible{outline:3px solid var(--a);outline-offset:2px}
@media (max-width:600px){main{padding:1rem .75rem 3rem}body{font-size:15px}.facts{grid-template-columns:1fr 1fr}
.facts dd{font-size:1.05rem}th,td{padding-right:.45rem}.plot{grid-template-columns:3.4rem minmax(0,1fr)}
.rows{grid-template-columns:minmax(3.4rem,5.5rem) minmax(0,1fr)}details dl{grid-template-columns:1fr}
details dd{margin-bottom:.3rem}}
@media print{:root{--page:#fff;--text:#000;--muted:#444;--line:#bbb;--soft:#f6f6f6;--a:#005a8c;--b:#993d00}
body{font-size:10.5pt}main{max-width:none;padding:0}section,details,.plot,.rows{break-inside:avoid-page}
.scroll{overflow:visible}table{font-size:8.5pt}td{max-width:none}th{white-space:normal}
.long{min-width:6rem}svg{print-color-adjust:exact;-webkit-print-color-adjust:exact}
details::details-content{content-visibility:visible;height:auto;opacity:1}}
"""


GREEN, BLUE, SKY, ORANGE = "#009e73", "#0072b2", "#56b4e9", "#e69f00"
RED, PINK, YELLOW, GREY = "#d55e00", "#cc79a7", "#f0e442", "#999999"

_INK = 'stroke="#000" stroke-opacity=".55" stroke-width="1.2" fill="none"'
_STROKES = {
    "/": "M-1 9 9-1M-1 1 1-1M7 9 9 7",
    "\\": "M-1-1 9 9M7-1 9 1M-1 7 1 9",
    "x": "M0 0 8 8M0 8 8 0",
    ".": "M2 2h1.5M6 6h1.5",
    "-": "M0 4h8",
}


@dataclass(frozen=True)
class Look:
    """How a state is drawn."""

    colour: str
    pattern: str = ""
    """`/`, `\\`, `x`, `.` or `-` in a darker ink over the colour; "": plain."""


LOOKS: dict[str, Look] = {
    Tile.PRODUCTIVE.value: Look(GREEN),
    Tile.CHECKPOINT_STALL.value: Look(BLUE),
    Tile.EVAL.value: Look(BLUE, "."),
    Tile.DATA_STALL.value: Look(YELLOW),
    Tile.STRAGGLER_LOSS.value: Look(YELLOW, "/"),
    Tile.QUEUE.value: Look(GREY, "."),
    Tile.PREFLIGHT.value: Look(SKY),
    Tile.INIT.value: Look(SKY, "/"),
    Tile.DETECT.value: Look(PINK),
    Tile.DIAGNOSE.value: Look(PINK, "x"),
    Tile.RESTART.value: Look(ORANGE),
    Tile.RESTORE.value: Look(ORANGE, "\\"),
    Tile.ROLLBACK.value: Look(RED, "x"),
    Tile.STANDBY.value: Look(GREY, "-"),
    Tile.PAUSED.value: Look(GREY, "x"),
    Tile.OTHER.value: Look(GREY),
}


def fill_of(state: str) -> str:
    """What a shape of this state is filled with; needs `patterns` once on the page."""
    look = LOOKS.get(state, LOOKS[Tile.OTHER.value])
    return f"url(#p-{state})" if look.pattern and state in LOOKS else look.colour


def patterns() -> str:
    """The definitions that `fill_of` names: an SVG without size, once a page."""
    made = "".join(
        f'<pattern id="p-{state}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<rect width="8" height="8" fill="{look.colour}"/><path d="{_STROKES[look.pattern]}" {_INK}/></pattern>'
        for state, look in LOOKS.items()
        if look.pattern
    )
    return f'<svg width="0" height="0" class="defs" aria-hidden="true" focusable="false"><defs>{made}</defs></svg>'


def swatch(state: str) -> str:
    """A small square in the look of a state; the text beside it says which."""
    rect = f'<rect width="14" height="14" fill="{fill_of(state)}"/>'
    return f'<svg class="swatch" width="14" height="14" aria-hidden="true" focusable="false">{rect}</svg>'
