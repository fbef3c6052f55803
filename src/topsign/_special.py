"""Functions of scipy.special, which their first call imports: that takes longer than the rest of a short command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import scipy  # submodules are imported at their first use


def _function(name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        return getattr(scipy.special, name)(*arguments, **options)

    return call


betainc = _function("betainc")
betainccinv = _function("betainccinv")
betaincinv = _function("betaincinv")
betaln = _function("betaln")
expit = _function("expit")
gammaln = _function("gammaln")
log_ndtr = _function("log_ndtr")
logsumexp = _function("logsumexp")
ndtr = _function("ndtr")
ndtri = _function("ndtri")
ndtri_exp = _function("ndtri_exp")
owens_t = _function("owens_t")
xlog1py = _function("xlog1py")
xlogy = _function("xlogy")
