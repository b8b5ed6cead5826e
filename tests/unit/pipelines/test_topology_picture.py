"""Plans drawn as Mermaid's flowcharts."""

from __future__ import annotations

import pytest

from pessoa.streams import App, PlanRefused, tumbling


def test_picture_shows_topics_once_and_a_box_for_each_query() -> None:
    app = App("loja", on_error="dead-letter")
    sales = app.stream("vendas", value="produto STRING, valor DOUBLE")
    sales.filter('valor > 10 AND produto <> "x"').to("caras")
    sales.group_by("produto").window(tumbling("1 min")).count().to("por-minuto")
    sales.to("copia")
    assert app.explain(format="mermaid").splitlines() == [
        "flowchart TD",
        '  t1[("vendas")]',
        '  t2[("loja-dead-letters")]',
        '  t3[("caras")]',
        '  t4[("por-minuto")]',
        '  t5[("copia")]',
        '  subgraph q1["loja-caras · real-time"]',
        '    n1["filter valor #gt; 10 AND produto #lt;#gt; #quot;x#quot;"]',
        "  end",
        '  subgraph q2["loja-por-minuto · micro-batch"]',
        '    n2["key by produto"]',
        '    n3[["aggregate count = count(*), windows of 1 minute, 1 day of grace"]]',
        "  end",
        '  subgraph q3["loja-copia · real-time"]',
        '    n4["copy"]',
        "  end",
        "  t1 -. bad records .-> t2",
        "  t1 --> n1",
        "  n1 --> t3",
        "  t1 --> n2",
        "  n2 --> n3",
        "  n3 --> t4",
        "  t1 --> n4",
        "  n4 --> t5",
    ]


def test_an_unknown_picture_format_is_refused() -> None:
    with pytest.raises(PlanRefused, match="text or mermaid"):
        App("loja").explain(format="svg")  # type: ignore[arg-type]
