"""Pictures of results, by matplotlib.

Those with one panel take `ax=` and return the Axes they drew on; those with several return a Figure. Factors are
numbered from 1. Save with `.savefig(path)` of a Figure, or of `ax.figure`. In the examples X is a table of 30
samples, p what `fit_vi(X, ...)` returned, and mc what `sample(X, ...)` did.
"""

from .chains import rank as rank
from .chains import trace as trace
from .factors import activations as activations
from .factors import scatter as scatter
from .factors import top_loadings as top_loadings
from .factors import variance_explained as variance_explained
from .fit import missingness as missingness
from .fit import observed_fitted as observed_fitted
from .heatmap import heatmap as heatmap
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
    "heatmap": heatmap,
    "top_loadings": top_loadings,
    "activations": activations,
    "scatter": scatter,
    "variance_explained": variance_explained,
    "variance_by_group": variance_by_group,
    "elbo": elbo,
    "trace": trace,
    "rank": rank,
    "agreement": agreement,
}

__all__ = [
    "KINDS",
    "activations",
    "agreement",
    "elbo",
    "factor_bars",
    "heatmap",
    "inclusion_heatmap",
    "missingness",
    "observed_fitted",
    "over_time",
    "rank",
    "scatter",
    "top_loadings",
    "trace",
    "variance_by_group",
    "variance_explained",
]
