"""What a report looks like, and the one thing that it does: the arrow keys walk its map."""

from __future__ import annotations

FORMAT_COLOURS: dict[str, tuple[str, str]] = {
    "bf16": ("#eceef0", "#2b3036"),
    "fp16": ("#dfe3e7", "#353b42"),
    "fp32": ("#d3d8de", "#414850"),
    "fp8": ("#bfe5b4", "#275c33"),
    "fp8_block": ("#8fd6c3", "#0f5f55"),
    "mxfp8": ("#9fcbf5", "#1c4f86"),
    "mxfp4": ("#d3bdf2", "#56389a"),
    "nvfp4": ("#ffbe7d", "#8a4b0c"),
    "int8": ("#f3df83", "#6b5a05"),
    "int4": ("#f5b1c3", "#86304d"),
}
"""The background of a format on a light and on a dark page; text on it keeps a contrast of at least 4.5."""

SHORT_NAMES: dict[str, str] = {
    "fp8_block": "fp8b",
    "mxfp8": "mx8",
    "mxfp4": "mx4",
    "nvfp4": "nv4",
}
"""Formats whose names are too long for a cell."""

_BASE = """
:root{--ink:#1b1f24;--soft:#57606a;--page:#fff;--line:#d0d7de;--panel:#f6f8fa;--bad:#b42318;--warn:#8a5a00;
 --info:#0b5cad}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1240px;padding:20px;color:var(--ink);background:var(--page);
  font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{font-size:22px;margin:0 0 4px}
h2{font-size:16px;margin:28px 0 8px}
p{margin:4px 0}
code,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:12.5px}
.soft{color:var(--soft)}
.digest{overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 14px;margin:8px 0}
dt{color:var(--soft)}
dd{margin:0}
.tiles{display:flex;flex-wrap:wrap;gap:10px;margin:12px 0}
.tile{border:1px solid var(--line);border-radius:8px;padding:8px 14px;background:var(--panel)}
.tile b{display:block;font-size:19px;font-variant-numeric:tabular-nums}
table{border-collapse:collapse}
caption{text-align:left;color:var(--soft);padding:0 0 6px}
.data th,.data td{padding:4px 12px 4px 0;border-bottom:1px solid var(--line);text-align:left;
 vertical-align:top}
.data th{font-weight:600}
.data .n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.swatch{display:inline-block;min-width:46px;padding:0 5px;border-radius:3px;text-align:center;
 font-size:11px;line-height:18px}
.bar{display:flex;width:220px;height:12px;border-radius:3px;overflow:hidden;margin-top:4px}
.bar span{height:12px}
@media (max-width:900px){.scroll{overflow-x:auto}.map{min-width:860px}}
.map thead{position:sticky;top:0;background:var(--page)}
.map{width:100%;table-layout:fixed;font-size:11px}
.map th{font-weight:600;padding:2px 1px;text-align:center;overflow-wrap:anywhere;line-height:1.2;
 vertical-align:bottom}
.map .group{border-bottom:2px solid var(--line)}
.map thead tr:first-child th:first-child,.map tbody th{width:62px}
.map tbody th{text-align:right;padding-right:8px;font-variant-numeric:tabular-nums;color:var(--soft);
 font-weight:400}
.map td{padding:0 1px 1px 0;height:19px}
.map .cell{display:flex;gap:1px}
.map button{scroll-margin:60px 0 100px;flex:1;min-width:0;
 height:18px;padding:0;border:0;border-radius:2px;color:inherit;font:inherit;
 line-height:18px; cursor:default;overflow:hidden;white-space:nowrap}
button:focus-visible,button:hover{outline:2px solid var(--ink);outline-offset:-1px}
.shown{position:sticky;bottom:0;margin:0;padding:8px 10px;min-height:76px;background:var(--panel);
 border:1px solid var(--line); border-radius:8px 8px 0 0;white-space:pre-wrap;overflow-wrap:anywhere;
 font-size:12px}
.error{color:var(--bad)}
.warning{color:var(--warn)}
.info{color:var(--info)}
.severity{font-weight:600}
.findings td{overflow-wrap:anywhere}
.findings td:nth-child(4){min-width:210px}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ed;--soft:#9aa4af;--page:#14171b;--line:#343b43;
 --panel:#1c2126; --bad:#ff8a7d;--warn:#f0b94a;--info:#7db8ff}}
@media print{.shown{display:none}body{max-width:none}button,.swatch,.bar span{print-color-adjust:exact}}
"""

SCRIPT = """
(function () {
  var cells = Array.prototype.slice.call(document.querySelectorAll(".map button"));
  var shown = document.querySelector(".shown");
  if (!cells.length || !shown) return;
  function show(cell) { shown.textContent = cell.getAttribute("data-at") + "\\n" + cell.title; }
  function move(cell) {
    cells.forEach(function (other) { other.tabIndex = other === cell ? 0 : -1; });
    cell.focus();
  }
  function vertical(cell, step) {
    var column = cell.closest("td").cellIndex, row = cell.closest("tr");
    for (row = step > 0 ? row.nextElementSibling : row.previousElementSibling; row;
         row = step > 0 ? row.nextElementSibling : row.previousElementSibling) {
      var found = row.cells[column].querySelector("button");
      if (found) return found;
    }
  }
  cells.forEach(function (cell, at) {
    cell.tabIndex = at ? -1 : 0;
    cell.addEventListener("focus", function () { show(cell); });
    cell.addEventListener("mouseenter", function () { show(cell); });
    cell.addEventListener("keydown", function (event) {
      var next = {
        ArrowRight: cells[at + 1], ArrowLeft: cells[at - 1],
        Home: cells[0], End: cells[cells.length - 1],
        ArrowDown: vertical(cell, 1), ArrowUp: vertical(cell, -1)
      }[event.key];
      if (next) { event.preventDefault(); move(next); }
    });
  });
})();
"""


def style_sheet() -> str:
    """This is the page's style sheet, with one class for each format."""
    light = "".join(f".f-{name}{{background:{colour}}}" for name, (colour, _) in FORMAT_COLOURS.items())
    dark = "".join(f".f-{name}{{background:{colour}}}" for name, (_, colour) in FORMAT_COLOURS.items())
    return f"{_BASE}{light}@media (prefers-color-scheme:dark){{{dark}}}"
