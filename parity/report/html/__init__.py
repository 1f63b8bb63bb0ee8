"""The HTML pages of checks and benchmarks: one self-contained file each, inline SVG, no script."""

from parity.report.html.bench_charts import growth_chart, ratio_scale, spread
from parity.report.html.bench_page import bench_page
from parity.report.html.charts import figures
from parity.report.html.check_page import check_page
from parity.report.html.page import POLICY
from parity.report.html.scales import linear, logarithmic, power, symmetric
from parity.report.html.svg import draw, verdict_icon

__all__ = [
    "POLICY",
    "bench_page",
    "check_page",
    "draw",
    "figures",
    "growth_chart",
    "linear",
    "logarithmic",
    "power",
    "ratio_scale",
    "spread",
    "symmetric",
    "verdict_icon",
]
