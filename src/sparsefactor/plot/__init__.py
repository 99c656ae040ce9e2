"""Pictures of results, by matplotlib.

Those with one panel take `ax=` and return the Axes they drew on; those with several return a Figure. Factors are
numbered from 1. Those of a result are also its methods: `p.plot.loadings()` is `sf.plot.loadings(p)`. Save with
`.savefig(path)` of a Figure, or of `ax.figure`. In the examples X is a table of 30 samples, p what `fit_vi(X, ...)`
returned, and mc what `sample(X, ...)` did.
"""

from .chains import rank as rank
from .chains import trace as trace
from .correlation import factor_correlation as factor_correlation
from .data import data_heatmap as data_heatmap
from .data import data_scatter as data_scatter
from .data import variance_by_sample as variance_by_sample
from .factors import activations as activations
from .factors import scatter as scatter
from .factors import top_loadings as top_loadings
from .factors import variance_explained as variance_explained
from .fit import missingness as missingness
from .fit import observed_fitted as observed_fitted
from .heatmap import heatmap as heatmap
from .overview import loadings as loadings
from .overview import structure as structure
from .panels import COLOR_MAP as COLOR_MAP
from .panels import MOST_PIXELS as MOST_PIXELS
from .panels import STYLES as STYLES
from .panels import Line as Line
from .panels import Panel as Panel
from .panels import factor_bars as factor_bars
from .panels import inclusion_heatmap as inclusion_heatmap
from .panels import over_time as over_time
from .search import agreement as agreement
from .search import elbo as elbo
from .views import variance_by_group as variance_by_group

# What `sparsefactor plot KIND` and the report can draw of a result alone, and of which results.
KINDS = {
    "loadings": loadings,
    "heatmap": heatmap,
    "top_loadings": top_loadings,
    "activations": activations,
    "scatter": scatter,
    "structure": structure,
    "factor_correlation": factor_correlation,
    "variance_explained": variance_explained,
    "variance_by_group": variance_by_group,
    "elbo": elbo,
    "trace": trace,
    "rank": rank,
    "agreement": agreement,
}
# And of a result and the data that it was fitted to.
DATA_KINDS = {
    "data_heatmap": data_heatmap,
    "data_scatter": data_scatter,
    "observed_fitted": observed_fitted,
    "variance_by_sample": variance_by_sample,
}

__all__ = [
    "KINDS",
    "activations",
    "agreement",
    "data_heatmap",
    "data_scatter",
    "elbo",
    "factor_bars",
    "factor_correlation",
    "heatmap",
    "inclusion_heatmap",
    "loadings",
    "missingness",
    "observed_fitted",
    "over_time",
    "rank",
    "scatter",
    "structure",
    "top_loadings",
    "trace",
    "variance_by_group",
    "variance_by_sample",
    "variance_explained",
]
