"""The columns' equations: message, column step, rescaling, and the ELBO's terms (math.md, 3 and 4).

Functions of arrays, of whatever library `Fixed.on` names, and of nothing else: an engine may run them where its rows
are, and compile them. Each update stands beside its term of the ELBO; those of the inclusion rates are in inclusion.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..arrays import NUMPY, Arrays
from ..data import Data
from ..densities import LOG_2PI, gamma_kl
from ..model import Prior
from .contract import Array, ELBOTerms, Message, Sums, VIColumns
from .correlation import correlation_term, gaussian_density, prior_precision, update_correlation

if TYPE_CHECKING:
    from .inclusion import Inclusion


class Fixed(NamedTuple):
    """What the columns need of data and prior, the same in every sweep."""

    on: Arrays
    noise: str  # "feature", "shared" or "sample"
    complete: bool
    n_observed: float
    n_samples: float
    column_ss: Array  # (N,)
    column_count: Array  # (N,)
    ones: Array  # (N,)
    noise_shape: Array  # ()
    noise_rate: Array  # (), or (N,) for noise="sample"; the rows' own is not here
    loading_shape: Array  # ()
    loading_rate: Array  # (), or (V,)
    correlation_df: float = 0.0  # of the prior on the factors' correlations; 0 where they are uncorrelated


def fixed_of(data: Data, prior: Prior, on: Arrays = NUMPY) -> Fixed:
    """Of a prior in the units of the data."""
    xp = on.xp
    rate = prior.noise_rate if prior.noise != "feature" else 1.0
    column_ss = xp.asarray(data.column_ss, dtype=xp.float64)
    return Fixed(
        on=on,
        noise=prior.noise,
        complete=data.is_complete,
        n_observed=data.n_observed,
        n_samples=float(data.n_samples),
        column_ss=column_ss,
        column_count=xp.asarray(data.column_count, dtype=xp.float64),
        ones=xp.ones_like(column_ss),
        noise_shape=xp.asarray(prior.noise_shape, dtype=xp.float64),
        noise_rate=xp.asarray(rate, dtype=xp.float64),
        loading_shape=xp.asarray(prior.loading_shape, dtype=xp.float64),
        loading_rate=xp.asarray(prior.loading_rate, dtype=xp.float64),
        correlation_df=prior.correlation_df,
    )


# ---- what both methods share ------------------------------------------------------------------------------------


def message(
    F: Array, spread: Array | None, weight: Array, alpha: Array, log_alpha: Array, scale: Array, odds: Any, fixed: Fixed
) -> Message:
    """What the rows need of the columns (4.2).

    F: (K, N) mean or draw of the activations; spread: their variances (K, N), covariances (1 or N, K, K), or None;
    weight: (N,) column precisions; odds: the fields of the message that tell of inclusion.
    """
    xp, K = fixed.on.xp, F.shape[0]
    weighted = F * weight
    gram = weighted @ F.T
    share = xp.zeros((0, K, K), dtype=gram.dtype)
    if not fixed.complete:
        share = weighted.T[:, :, None] * F.T[:, None, :]
    if spread is not None and spread.ndim == 3:
        gram = gram + weighted_covariance(spread, weight, fixed)
        share = share if fixed.complete else share + weight[:, None, None] * spread
    elif spread is not None:
        one = xp.eye(K, dtype=gram.dtype)
        gram = gram + one * (spread @ weight)[:, None]
        share = share if fixed.complete else share + one[None, :, :] * (spread * weight).T[:, :, None]
    return Message(
        F=weighted.T, gram=gram, share=share, alpha=alpha, log_alpha=log_alpha, scale=scale, weight=weight, **odds
    )


def weighted_covariance(covariance: Array, weight: Array, fixed: Fixed) -> Array:
    """(K, K) the sum over samples of weight times covariance (1 or N, K, K)."""
    if covariance.shape[0] == 1:
        total = fixed.n_samples if fixed.noise == "feature" else fixed.on.xp.sum(weight)
        return covariance[0, :, :] * total
    return fixed.on.einsum("j,jkl->kl", weight, covariance)


def noise_posterior(rss: Array, fixed: Fixed) -> tuple[Array, Array]:
    """Shape and rate, (N,) each, of column-wise tau given each sample's residual sum of squares (2.1, 3.3).

    For noise="shared" there is one tau, and its shape and rate are repeated for every sample.
    """
    xp, count = fixed.on.xp, fixed.column_count
    rss = xp.maximum(rss, xp.zeros_like(rss))  # formed by differences, it may round below zero
    if fixed.noise == "shared":
        rss, count = fixed.ones * xp.sum(rss), fixed.ones * xp.sum(count)
    return fixed.noise_shape + 0.5 * count, fixed.noise_rate + 0.5 * rss


def explained(F: Array, sums: Sums, fixed: Fixed) -> Array:
    """(N,) 2 f_j'(sum w l y_j) - f_j' D_j f_j: what a draw of F takes off a sample's weighted sum of squares."""
    xp = fixed.on.xp
    if fixed.complete:
        quadratic = xp.sum(F * (sums.LL @ F), axis=0)
    else:
        quadratic = xp.sum(F * fixed.on.einsum("jkl,lj->kj", sums.LL + sums.LL_share, F), axis=0)
    taken = 2.0 * xp.sum(F * sums.LY, axis=0) - quadratic
    return taken - sums.shift if sums.shift.shape[0] else taken


# ---- variational inference: a sweep -----------------------------------------------------------------------------


def vi_message(columns: VIColumns, scale: Array, inclusion: Inclusion, fixed: Fixed) -> Message:
    """What the rows need of q of the columns (4.2)."""
    alpha = columns.alpha_shape / columns.alpha_rate
    log_alpha = fixed.on.digamma(columns.alpha_shape) - fixed.on.xp.log(columns.alpha_rate)
    F, spread, odds = columns.f_mean, columns.f_var, inclusion.odds(columns)
    return message(F, spread, noise_mean(columns, fixed), alpha, log_alpha, scale, odds, fixed)


def after_activations(columns: VIColumns, sums: Sums, inclusion: Inclusion, fixed: Fixed) -> VIColumns:
    """q(tau) if it is column-wise, q(alpha), q(pi), in this order; q(F), an engine's, comes before."""
    if fixed.noise != "feature":
        tau_shape, tau_rate = noise_posterior(expected_rss(columns, sums, fixed), fixed)
        columns = columns._replace(tau_shape=tau_shape, tau_rate=tau_rate)
    alpha_shape, alpha_rate = slab_posterior(sums.active, sums.l2, fixed)
    return inclusion.updated(columns._replace(alpha_shape=alpha_shape, alpha_rate=alpha_rate), sums)


def rescaled(columns: VIColumns, fixed: Fixed) -> tuple[VIColumns, Array]:
    """(l_k, f_k, alpha_k) -> (l_k / c, c f_k, c^2 alpha_k) at the c that maximises the ELBO (3.12).

    Where the factors' correlations are learnt, they are updated in the same step (3.22). Returns the columns at the new
    scale, and 1 / c for the rows.
    """
    xp, N = fixed.on.xp, fixed.n_samples
    a, b = fixed.loading_shape, fixed.loading_rate
    part, V = 2.0 * b * columns.alpha_shape / columns.alpha_rate, 1
    if part.ndim == 2:
        part, V = xp.sum(part, axis=1), part.shape[1]
    if fixed.correlation_df:
        moments, df = second_moments(columns, fixed), fixed.correlation_df
        phi, c = update_correlation(columns.phi, moments, part, N, 2.0 * a * V, df, fixed.on)
        columns = columns._replace(phi=phi)
    else:
        c = xp.sqrt((N + 2.0 * a * V) / (second_moment(columns, fixed) + part))
    f_var = columns.f_var * (c[:, None] * c[None, :] if columns.f_var.ndim == 3 else c[:, None] ** 2)
    alpha_rate = columns.alpha_rate / (c**2 if columns.alpha_rate.ndim == 1 else c[:, None] ** 2)
    return columns._replace(f_mean=columns.f_mean * c[:, None], f_var=f_var, alpha_rate=alpha_rate), 1.0 / c


def slid(columns: VIColumns, spread: Array, basis: Array, place: Array, fixed: Fixed) -> VIColumns:
    """f_k -> f_k - e'C, base -> base + e l_k at the e that maximises the ELBO but for base's own prior (3.19).

    spread: (N, K) the rows' sums of the loadings' variances; basis: C, (s, N), of the s directions that may slide;
    place: (s, d) one where each of them is among all d.
    """
    xp, C, prior = fixed.on.xp, basis, prior_precision(columns, fixed.on)
    H, F = noise_mean(columns, fixed)[:, None] * spread, columns.f_mean
    slides = []
    for k in range(F.shape[0]):  # one factor after another: Phi couples them
        gram = prior[k, k] * (C @ C.T) + (C * H[:, k]) @ C.T
        slide = xp.linalg.solve(gram, C @ (prior[k, :] @ F + H[:, k] * F[k, :]))
        F = xp.concat([F[:k, :], (F[k, :] - slide @ C)[None, :], F[k + 1 :, :]], axis=0)
        slides.append(slide)
    return columns._replace(f_mean=F, slide=xp.stack(slides) @ place)


def elbo_terms(columns: VIColumns, sums: Sums, inclusion: Inclusion, fixed: Fixed) -> ELBOTerms:
    """Complete, every constant included (3.7)."""
    likelihood, loadings, noise = sums.elbo
    likelihood = likelihood - 0.5 * fixed.n_observed * LOG_2PI
    if fixed.noise != "feature":
        likelihood = likelihood + column_likelihood(columns, fixed)
        noise = noise_term(columns, fixed)
    return ELBOTerms(
        likelihood=likelihood,
        loadings=loadings + inclusion.log_out(columns),
        activations=activations_term(columns, fixed),
        noise_precision=noise,
        loading_precision=slab_term(columns, fixed),
        inclusion_rate=inclusion.term(columns),
        factor_correlation=correlation_term(columns, fixed.correlation_df, fixed.on),
    )


# ---- activations ------------------------------------------------------------------------------------------------


def activations_term(columns: VIColumns, fixed: Fixed) -> Any:
    """E[log p(F) - log q(F)] = (K N + log det S - E|F|^2) / 2 (3.11), or with Phi (3.22)."""
    xp, K, N = fixed.on.xp, columns.f_mean.shape[0], fixed.n_samples
    if columns.f_var.ndim == 3:
        log_dets, traces = xp.linalg.slogdet(columns.f_var)[1], xp.linalg.trace(columns.f_var)
        repeats = N / columns.f_var.shape[0]
        log_det, trace = repeats * xp.sum(log_dets), repeats * xp.sum(traces)
    else:
        # activations at a point, of variance zero, have no entropy
        log_det, trace = xp.sum(fixed.on.log(columns.f_var)), xp.sum(columns.f_var)
    if columns.phi.shape[0]:
        moments = second_moments(columns, fixed)
        return 0.5 * (K * N + log_det) + gaussian_density(columns.phi, xp.linalg.inv(columns.phi), moments, N, fixed.on)
    return 0.5 * (K * N + log_det - xp.sum(columns.f_mean**2) - trace)


def second_moment(columns: VIColumns, fixed: Fixed) -> Array:
    """(K,) E|f_k|^2."""
    xp, f_var = fixed.on.xp, columns.f_var
    f2 = xp.sum(columns.f_mean**2, axis=1)
    if f_var.ndim == 3:
        return f2 + fixed.n_samples / f_var.shape[0] * fixed.on.einsum("jkk->k", f_var)
    return f2 + xp.sum(f_var, axis=1)


def second_moments(columns: VIColumns, fixed: Fixed) -> Array:
    """(K, K) E[F F']."""
    xp, f_var = fixed.on.xp, columns.f_var
    outer = columns.f_mean @ columns.f_mean.T
    if f_var.ndim == 3:
        return outer + fixed.n_samples / f_var.shape[0] * xp.sum(f_var, axis=0)
    return outer + xp.eye(f_var.shape[0], dtype=outer.dtype) * xp.sum(f_var, axis=1)[:, None]


# ---- noise that belongs to the columns (noise="shared" and "sample") --------------------------------------------


def noise_mean(columns: VIColumns, fixed: Fixed) -> Array:
    """(N,) E[tau] of each column; ones where noise belongs to the rows."""
    return fixed.ones if fixed.noise == "feature" else columns.tau_shape / columns.tau_rate


def expected_rss(columns: VIColumns, sums: Sums, fixed: Fixed) -> Array:
    """(N,) E[sum over observed i of (y_ij - l_i'f_j)^2] (3.4)."""
    xp, einsum, F = fixed.on.xp, fixed.on.einsum, columns.f_mean
    N = F.shape[1]
    D = sums.LL[None, :, :] if fixed.complete else sums.LL + sums.LL_share
    DF = sums.LL @ F if fixed.complete else (D @ F.T[:, :, None])[:, :, 0].T
    quadratic = xp.sum(F * DF, axis=0)
    if columns.f_var.ndim == 3:
        spread = xp.broadcast_to(einsum("jkl,jkl->j", D, columns.f_var), (N,))
    else:
        spread = xp.sum(einsum("jkk->kj", D) * columns.f_var, axis=0)
    column_ss = fixed.column_ss + sums.shift if sums.shift.shape[0] else fixed.column_ss
    return column_ss - 2.0 * xp.sum(F * sums.LY, axis=0) + quadratic + spread


def column_likelihood(columns: VIColumns, fixed: Fixed) -> Any:
    """The likelihood's parts that depend on column-wise tau and on y^2 alone (3.10)."""
    log_tau = fixed.on.digamma(columns.tau_shape) - fixed.on.xp.log(columns.tau_rate)
    return 0.5 * (fixed.column_count @ log_tau - noise_mean(columns, fixed) @ fixed.column_ss)


def noise_term(columns: VIColumns, fixed: Fixed) -> Any:
    """-KL(q(tau) || p(tau)) (3.9)."""
    kl = gamma_kl(columns.tau_shape, columns.tau_rate, fixed.noise_shape, fixed.noise_rate, fixed.on)
    return -(kl[0] if fixed.noise == "shared" else fixed.on.xp.sum(kl))


# ---- slab precisions --------------------------------------------------------------------------------------------


def slab_posterior(active: Array, l2: Array, fixed: Fixed) -> tuple[Array, Array]:
    """Shape and rate of alpha_k given the sums of z_ik and of z_ik l_ik^2, or of their expectations (2.7, 3.2)."""
    return fixed.loading_shape + 0.5 * active, fixed.loading_rate + 0.5 * l2


def slab_term(columns: VIColumns, fixed: Fixed) -> Any:
    """-KL(q(alpha) || p(alpha)) (3.9)."""
    kl = gamma_kl(columns.alpha_shape, columns.alpha_rate, fixed.loading_shape, fixed.loading_rate, fixed.on)
    return -fixed.on.xp.sum(kl)
