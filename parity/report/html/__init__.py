"""The HTML pages of checks and benchmarks: one self-contained file each, inline SVG, no script."""

from parity.report.html.bench_charts import box, growth_chart, ratio_scale, spread, time_scale
from parity.report.html.bench_page import bench_page
from parity.report.html.charts import figures
from parity.report.html.check_page import check_page
from parity.report.html.page import POLICY
from parity.report.html.scales import linear, logarithmic, power, symmetric
from parity.report.html.speed_chart import speed_file, speed_panel
from parity.report.html.svg import draw, verdict_icon

__all__ = [
    "POLICY",
    "bench_page",
    "box",
    "check_page",
    "draw",
    "figures",
    "growth_chart",
    "linear",
    "logarithmic",
    "power",
    "ratio_scale",
    "speed_file",
    "speed_panel",
    "spread",
    "symmetric",
    "time_scale",
    "verdict_icon",
]
