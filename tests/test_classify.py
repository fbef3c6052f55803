import topsign as ts
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks
ESTIMATORS = [
    ts.AdaptiveLinearClassifier(LogisticRegression(), n_bits=32, n_pool=64, random_state=7),
    ts.AdaptiveLinearClassifier(LogisticRegression(fit_intercept=False), n_bits=32, n_pool=64, scoring="hamming", random_state=7),
    ts.AdaptiveLinearClassifier(LogisticRegression(), n_bits=32, n_pool=64, shortlist=2, random_state=7),
    ts.SignLinearClassifier(LogisticRegression(fit_intercept=False), n_bits=64, random_state=7),
    ts.SignLinearClassifier(LogisticRegression(), scoring="asymmetric", n_bits=64, random_state=7),
    ts.UniversalLinearClassifier(LogisticRegression(fit_intercept=False), n_bits=64, random_state=7),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
