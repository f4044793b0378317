"""`report.html`: what a contract decides, on one page that needs no network and no script to be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from precc.cli.markup import Html, element, joined
from precc.cli.report_map import Column, LayerMap, Row, Segment, describe, layer_map, row_title
from precc.cli.report_style import SCRIPT, SHORT_NAMES, style_sheet
from precc.contract import Contract, Entry, Layout
from precc.diagnostics import Diagnostic
from precc.formats import FORMATS, Decision


def render_report(contract: Contract, findings: Sequence[Diagnostic], title: str) -> str:
    """This is the whole page; the same arguments give the same text."""
    keys = _decision_keys(contract)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Html(style_sheet())),
    )
    body = element(
        "body",
        element("main", *_sections(contract, findings, title, keys)),
        element("script", Html(SCRIPT)),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _sections(
    contract: Contract, findings: Sequence[Diagnostic], title: str, keys: dict[Decision, str]
) -> Iterator[Html]:
    yield _header(contract, title)
    yield _summary(contract, findings)
    yield from _findings(findings)
    yield from _legend(contract, keys)
    yield from _map(contract, keys)
    yield from _sizes(contract)


# --- header and summary ------------------------------------------------------------------------------


def _header(contract: Contract, title: str) -> Html:
    model = contract.model
    facts = {
        "policy": contract.policy,
        "model": f"{model.name} ({model.architecture}, {model.layers} decoder layers)",
        "KV cache": contract.kv_cache,
        "targets": "all" if contract.targets is None else ", ".join(contract.targets) or "none",
        "train": _layout(contract.train),
        "rollout": _layout(contract.rollout),
    }
    rows = [joined(element("dt", name), element("dd", value)) for name, value in facts.items()]
    digest = joined(element("dt", "digest"), element("dd", element("code", contract.digest, class_="digest")))
    return element("header", element("h1", title), element("dl", *rows, digest))


def _layout(layout: Layout) -> str:
    words = [f"{key}={value}" for key, value in layout.to_json().items() if key != "stated" and value not in ("", 0)]
    return " ".join(words) + ("" if layout.stated else " (assumed)")


def _summary(contract: Contract, findings: Sequence[Diagnostic]) -> Html:
    whole = Size.of(contract.entries)
    tiles = {
        "parameters": f"{whole.parameters:,}",
        "weights decided": f"{whole.tensors:,}",
        "in a checkpoint": size_text(whole.bytes),
        "bits a weight": f"{whole.bits_per_weight:.3f}",
        "findings": str(len(findings)),
    }
    shown = [element("div", element("b", value), name, class_="tile") for name, value in tiles.items()]
    table = _size_table("Formats of the weights", "format", _by(contract, lambda e: e.decision.weight.format), whole)
    return element("section", element("h2", "Summary"), element("div", *shown, class_="tiles"), table)


class Size(NamedTuple):
    """How much some entries are; bits count scales."""

    tensors: int
    parameters: int
    bits: int

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Size:
        """This adds entries up."""
        listed = list(entries)
        return cls(
            sum(entry.tensor.count for entry in listed),
            sum(entry.tensor.parameters for entry in listed),
            sum(entry.stored_bits for entry in listed),
        )

    @property
    def bytes(self) -> int:
        """What they occupy in a checkpoint."""
        return self.bits // 8

    @property
    def bits_per_weight(self) -> float:
        """Stored bits over parameters."""
        return self.bits / self.parameters if self.parameters else 0.0


def size_text(count: int) -> str:
    """Bytes as people read them: `362.07 GiB`."""
    size, units = float(count), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{count:,} bytes" if units[0] == "bytes" else f"{size:,.2f} {units[0]}"


def _by(contract: Contract, key: Callable[[Entry], str]) -> dict[str, list[Entry]]:
    grouped: dict[str, list[Entry]] = {}
    for entry in contract.entries:
        grouped.setdefault(key(entry), []).append(entry)
    return dict(sorted(grouped.items(), key=lambda item: (-Size.of(item[1]).parameters, item[0])))


def _size_table(caption: str, name: str, grouped: dict[str, list[Entry]], whole: Size) -> Html:
    rows = [_size_row(title, entries, whole, name == "format") for title, entries in grouped.items()]
    heads = ("tensors", "parameters", "share", "stored", "bits a weight")
    head = element("tr", _head(name), *(_head(text, class_="n") for text in heads), _head("formats, by parameters"))
    return element("table", element("caption", caption), element("thead", head), element("tbody", *rows), class_="data")


def _size_row(title: str, entries: list[Entry], whole: Size, is_format: bool) -> Html:
    size = Size.of(entries)
    figures = (
        f"{size.tensors:,}",
        f"{size.parameters:,}",
        f"{size.parameters / whole.parameters:.2%}" if whole.parameters else "–",
        size_text(size.bytes),
        f"{size.bits_per_weight:.3f}",
    )
    shown = _swatch(title, title) if is_format else title
    cells = [element("td", figure, class_="n") for figure in figures]
    return element("tr", element("th", shown, scope="row"), *cells, element("td", _bar(entries, size.parameters)))


def _bar(entries: list[Entry], parameters: int) -> Html:
    shares: dict[str, int] = {}
    for entry in entries:
        name = entry.decision.weight.format
        shares[name] = shares.get(name, 0) + entry.tensor.parameters
    parts = [(name, shares[name] / parameters) for name in FORMATS if shares.get(name)]
    spans = [element("span", class_=f"f-{name}", style=f"width:{share:.4%}") for name, share in parts]
    return element("div", *spans, class_="bar", role="img", aria_label=", ".join(f"{n} {s:.2%}" for n, s in parts))


def _sizes(contract: Contract) -> Iterator[Html]:
    def role(entry: Entry) -> str:
        bucket = entry.tensor.bucket
        return bucket.value if bucket else "no role"

    yield element("h2", "Sizes by role")
    yield _size_table("Stored sizes, scales included", "role", _by(contract, role), Size.of(contract.entries))


# --- legend and map ----------------------------------------------------------------------------------


def _decision_keys(contract: Contract) -> dict[Decision, str]:
    """The text of a cell for each decision: the format, with a letter where it has several decisions."""
    decisions = dict.fromkeys(entry.decision for entry in contract.entries)
    keys: dict[Decision, str] = {}
    for name, group in _grouped(decisions, lambda decision: decision.weight.format).items():
        texts = list(dict.fromkeys(str(decision) for decision in group))
        for decision in group:
            letter = f" {_letter(texts.index(str(decision)))}" if len(texts) > 1 else ""
            keys[decision] = SHORT_NAMES.get(name, name) + letter
    return keys


def _letter(number: int) -> str:
    return "abcdefghijklmnopqrstuvwxyz"[number] if number < 26 else str(number)


def _grouped(decisions: Iterable[Decision], key: Callable[[Decision], str]) -> dict[str, list[Decision]]:
    grouped: dict[str, list[Decision]] = {}
    for decision in decisions:
        grouped.setdefault(key(decision), []).append(decision)
    return grouped


def _swatch(form: str, text: str) -> Html:
    return element("span", text, class_=f"swatch f-{form}")


def _legend(contract: Contract, keys: dict[Decision, str]) -> Iterator[Html]:
    places = {decision: (decision.weight.format, key, str(decision)) for decision, key in keys.items()}
    held: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in contract.entries:
        held.setdefault(places[entry.decision], []).append(entry)
    order = list(FORMATS)
    rows = [
        _legend_row(*place, Size.of(entries))
        for place, entries in sorted(held.items(), key=lambda item: (-order.index(item[0][0]), item[0]))
    ]
    head = element("tr", *map(_head, ("cell", "decision")), *(_head(t, class_="n") for t in ("tensors", "parameters")))
    yield element("h2", "Decisions", id="decisions")
    yield element("table", element("thead", head), element("tbody", *rows), class_="data")


def _legend_row(form: str, key: str, text: str, size: Size) -> Html:
    figures = [element("td", f"{number:,}", class_="n") for number in (size.tensors, size.parameters)]
    return element("tr", element("td", _swatch(form, key)), element("th", text, scope="row"), *figures)


def _map(contract: Contract, keys: dict[Decision, str]) -> Iterator[Html]:
    shown = layer_map(contract)
    caption = element(
        "caption", "Point at a cell, or walk with the arrow keys, for its tensors and the rule behind them."
    )
    rows = [_map_row(row, shown, keys) for row in shown.rows]
    table = element("table", caption, _map_head(shown.columns), element("tbody", *rows), class_="map")
    chosen = element("p", "No cell chosen.", class_="shown mono", role="status")
    yield element("section", element("h2", "Layers × modules"), element("div", table, class_="scroll"), chosen)


def _map_head(columns: tuple[Column, ...]) -> Html:
    groups = [(heading, len(list(group))) for heading, group in groupby(columns, key=lambda column: column[0])]
    upper = [_head(heading, class_="group", colspan=width, scope="colgroup") for heading, width in groups]
    lower = [_head(name) for _, name in columns]
    return element("thead", element("tr", _head("layer", rowspan=2), *upper), element("tr", *lower))


def _map_row(row: Row, shown: LayerMap, keys: dict[Decision, str]) -> Html:
    cells = [_cell(row, column, shown.cells.get((row, column), ()), keys) for column in shown.columns]
    return element("tr", element("th", row_title(row), scope="row"), *cells)


def _cell(row: Row, column: Column, segments: tuple[Segment, ...], keys: dict[Decision, str]) -> Html:
    if not segments:
        return element("td")
    place = f"{row_title(row) if row[0] != 'layer' else f'layer {row[1]}'}, {' '.join(dict.fromkeys(column))}"
    buttons = [
        element(
            "button",
            keys[segment.decision],
            type="button",
            class_=f"f-{segment.decision.weight.format}",
            title=describe(segment),
            data_at=place,
        )
        for segment in segments
    ]
    return element("td", element("div", *buttons, class_="cell"))


def _head(text: str, **attributes: str | int) -> Html:
    return element("th", text, **{"scope": "col", **attributes})


# --- findings ----------------------------------------------------------------------------------------


def _findings(findings: Sequence[Diagnostic]) -> Iterator[Html]:
    yield element("h2", "Findings")
    if not findings:
        yield element("p", "None.")
        return
    head = element("tr", *map(_head, ("code", "severity", "finding", "where")))
    rows = [_finding(finding) for finding in findings]
    yield element("table", element("thead", head), element("tbody", *rows), class_="data findings")


def _finding(finding: Diagnostic) -> Html:
    severity = finding.severity.value
    help_line = element("p", f"help: {finding.help}", class_="soft") if finding.help else None
    span = finding.span
    where = f"{span.source.path}:{span.line}:{span.column}" if span else "–"
    return element(
        "tr",
        element("th", finding.code, scope="row"),
        element("td", severity, class_=f"severity {severity}"),
        element("td", finding.message, help_line),
        element("td", element("code", where)),
    )
